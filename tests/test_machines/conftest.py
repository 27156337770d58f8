"""An account of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from starter.asking import Asking
from tests.test_machines.estate import Estate
from workers.service import Service


@pytest.fixture
async def estate(asking: Asking, stack: Service, ns: str) -> AsyncIterator[Estate]:
    ours = Estate(asking, stack, f"{ns}x")
    yield ours
    await ours.heal_faults()
