from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.test_edge.kit import Edge, edge_of
from tests.test_edge.processes import close_crm_forkserver
from tests.user import User


@pytest.fixture(scope="session", autouse=True)
async def _no_crm_forkserver_is_left() -> AsyncIterator[None]:
    yield
    await close_crm_forkserver()


@pytest.fixture
async def edge(user: User, home: Path, client: Client) -> AsyncIterator[Edge]:
    """A user of the edge in an organisation of its own, whose CRMs end with the test."""
    async with edge_of(user, home, client) as found:
        yield found
