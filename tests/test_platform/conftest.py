"""A site of its own for every test that starts and stops worker processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import Site, open_postgres_site


@pytest.fixture
async def site(tmp_path: Path, postgres_url: str, forkserver: ForkServer) -> AsyncIterator[Site]:
    async with open_postgres_site(tmp_path, postgres_url, forkserver) as found:
        yield found
