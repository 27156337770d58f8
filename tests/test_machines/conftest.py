"""An account of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from client.actions import ActionClient
from tests.test_machines.site import MachineSite
from workers.service import WorkerService


@pytest.fixture
async def site(asking: ActionClient, stack: WorkerService, ns: str) -> AsyncIterator[MachineSite]:
    ours = MachineSite(asking, stack, f"{ns}x")
    yield ours
    await ours.heal_faults()
