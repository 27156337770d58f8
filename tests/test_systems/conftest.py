"""A system per test, on the shared stack."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from client.actions import ActionClient
from tests.test_cli.conftest import cli
from tests.test_systems.kit import Shop
from workers.service import WorkerService

__all__ = ["cli"]  # a fixture of theirs


@pytest.fixture
async def shop(asking: ActionClient, stack: WorkerService, ns: str) -> AsyncIterator[Shop]:
    """An empty system on the simulated backend, gone after the test; every promise about it is kept."""
    found = await Shop(asking, stack, f"system:{ns}").create()
    yield found
    found.let_go()
    await found.all_promises_are_kept()
    if await found.states():
        assert (await found.do("/", "delete")).status == "None"
    await found.all_promises_are_kept()


@pytest.fixture
async def real(asking: ActionClient, stack: WorkerService, ns: str) -> AsyncIterator[Shop]:
    """The same with real processes."""
    found = await Shop(asking, stack, f"system:{ns}", "process").create()
    yield found
    await found.all_promises_are_kept()
    if await found.states():
        assert (await found.do("/", "delete")).status == "None"
    assert [unit for unit in await found.supervisor.ledger.list_instances() if unit.path.startswith(found.path)] == []
