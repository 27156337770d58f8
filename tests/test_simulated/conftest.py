"""Databases and clouds for the tests of providers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from providers.simulated import SimulatedCloud, create_tables
from providers.simulated.tables import metadata
from store.engine import Database


def _empty_database(backend: str, request: pytest.FixtureRequest) -> str:
    if backend == "sqlite":
        directory: Path = request.getfixturevalue("tmp_path")
        return f"sqlite:///{directory}/cloud.db"
    url: str = request.getfixturevalue("postgres_url")
    database = Database(url)
    database.run_transaction_blocking(metadata.drop_all)
    database.close()
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database for each test."""
    return _empty_database(request.param, request)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    database.run_transaction_blocking(create_tables)
    yield database
    database.close()


@pytest.fixture
def other(url: str, database: Database) -> Iterator[Database]:
    """The same database as another process sees it."""
    other = Database(url)
    yield other
    other.close()


@pytest.fixture
async def aws(database: Database) -> AsyncIterator[SimulatedCloud]:
    cloud = SimulatedCloud("aws", database, bulk=100)
    yield cloud
    await cloud.close()
    assert cloud.current_concurrency().regions == 0
