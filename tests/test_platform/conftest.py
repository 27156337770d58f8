"""A site of its own for every test that starts and stops worker processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from client.actions import ActionClient
from tests.patience import PATIENCE
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import Site, open_postgres_site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Some wait for several things, one after the other: each wait ends before, and says what it waited for."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(6 * PATIENCE))


@pytest.fixture(scope="module", autouse=True)
def patient_clients() -> Iterator[None]:
    """Clients wait for an answer as long as tests do: a busy machine is no failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActionClient, "admission_seconds", PATIENCE)
        yield


@pytest.fixture
async def site(tmp_path: Path, postgres_url: str, forkserver: ForkServer) -> AsyncIterator[Site]:
    async with open_postgres_site(tmp_path, postgres_url, forkserver) as found:
        yield found
