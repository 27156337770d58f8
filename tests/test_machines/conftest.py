"""An account of its own for each test, or hosts of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from client.actions import ActionClient
from providers.machines.qemu import process
from tests.patience import PATIENCE
from tests.stack import family_of
from tests.test_machines.hosts import Hosts, write_connections
from tests.test_machines.qemu import end_qemu_processes, qemu_options
from tests.test_machines.site import MachineSite
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import open_postgres_site
from workers.machines import MachineFamily
from workers.service import WorkerService

process.QMP_SECONDS = PATIENCE  # a QEMU on a busy machine answers late


@pytest.fixture
async def site(
    asking: ActionClient, stack: WorkerService, ns: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MachineSite]:
    """Its orders may take as long as the test does."""
    ours = MachineSite(asking, stack, f"{ns}x")
    retry = vars(family_of(stack, MachineFamily).retry)
    for limit in ("call_seconds", "total_seconds"):
        monkeypatch.setitem(retry, limit, PATIENCE)
    monkeypatch.setattr(ours.hypervisor._provider, "simulate_delays", ours.until_released)
    yield ours
    await ours.heal_faults()


@pytest.fixture
async def hosts(tmp_path: Path, postgres_url: str, forkserver: ForkServer) -> AsyncIterator[Hosts]:
    async with open_postgres_site(tmp_path / "home", postgres_url, forkserver) as site:
        ours = Hosts(site, tmp_path, qemu_options(tmp_path / "qemu"))
        site.environment["RATCHET_CALL_TIMEOUT"] = "60"
        write_connections(ours)
        try:
            yield ours
        finally:
            end_qemu_processes(tmp_path)
