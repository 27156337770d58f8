"""A site of its own for every test that starts and stops worker processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from client.connection import connect_temporal
from store.engine import Database
from tests.stack import fresh_database
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import Site
from workers import embedded
from workers.plugin import temporal_plugin


@asynccontextmanager
async def opened(home: Path, postgres_url: str, forkserver: ForkServer) -> AsyncIterator[Site]:
    """A site that ends, with all its workers, when the block does."""
    url = fresh_database(postgres_url)
    server = await embedded.start_server(home)
    client = await connect_temporal(home, temporal_plugin())
    environment = {
        "RATCHET_HOME": str(home),
        "RATCHET_STORE_URL": url,
        "RATCHET_CLOUD_URL": url,
        "TEMPORAL_ADDRESS": server.address,
        "RATCHET_SIMULATED_LATENCY": "0",
        "RATCHET_DRAIN": "1",
    }
    site = Site(home, server, client, Database(url), Database(url), forkserver, environment)
    try:
        yield site
    finally:
        for worker in site.workers:
            await site.kill(worker)
        site.database.close()
        site.clouds.close()
        await server.stop_server()


@pytest.fixture
async def site(tmp_path: Path, postgres_url: str, forkserver: ForkServer) -> AsyncIterator[Site]:
    async with opened(tmp_path, postgres_url, forkserver) as found:
        yield found
