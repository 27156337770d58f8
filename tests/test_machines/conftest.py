"""An account of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from client.actions import ActionClient
from tests.test_machines.estate import Estate
from workers.service import Service


@pytest.fixture
async def estate(asking: ActionClient, stack: Service, ns: str) -> AsyncIterator[Estate]:
    ours = Estate(asking, stack, f"{ns}x")
    yield ours
    await ours.heal_faults()
