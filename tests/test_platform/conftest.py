"""A site of its own for every test that starts and stops worker processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa

from store.engine import Database
from tests.test_platform.nursery import Nursery
from tests.test_platform.site import Site
from workers import embedded
from workers.connection import connect
from workers.plugin import plugin

_numbers = count(1)


def fresh_database(postgres_url: str) -> str:
    """An empty database in the session's PostgreSQL."""
    name = f"site_{next(_numbers)}"
    url = sa.make_url(postgres_url)
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    return url.set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
async def nursery() -> AsyncIterator[Nursery]:
    opened = await Nursery.open()
    yield opened
    await opened.close()


@pytest.fixture
async def site(tmp_path: Path, postgres_url: str, nursery: Nursery) -> AsyncIterator[Site]:
    url = fresh_database(postgres_url)
    server = await embedded.start(tmp_path)
    client = await connect(tmp_path, plugin())
    environment = {
        "RATCHET_HOME": str(tmp_path),
        "RATCHET_STORE_URL": url,
        "RATCHET_CLOUD_URL": url,
        "TEMPORAL_ADDRESS": server.address,
        "RATCHET_SIMULATED_LATENCY": "0",
        "RATCHET_DRAIN": "1",
    }
    found = Site(tmp_path, server, client, Database(url), Database(url), nursery, environment)
    yield found
    for worker in found.workers:
        await found.kill(worker)
    found.database.close()
    found.clouds.close()
    await server.stop()
