from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.test_edge.kit import Edge, edge_of
from tests.user import User


@pytest.fixture
async def edge(user: User, home: Path, client: Client) -> AsyncIterator[Edge]:
    """A user of the edge in an organisation of its own, whose CRMs end with the test."""
    async with edge_of(user, home, client) as found:
        yield found
