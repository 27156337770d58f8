"""The simulated cloud, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from providers.simulated import SimulatedCloud, create_tables
from providers.simulated.tables import metadata
from store.engine import Database
from tests.test_clouds.kit import Opener, Subject


def _on_sqlite(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Subject]:
    return _kept_at(f"sqlite:///{request.getfixturevalue('tmp_path')}/cloud.db")


def _on_postgres(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Subject]:
    url: str = request.getfixturevalue("postgres_url")
    database = Database(url)
    database.run_transaction_blocking(metadata.drop_all)
    database.close()
    return _kept_at(url)


@asynccontextmanager
async def _kept_at(url: str) -> AsyncIterator[Subject]:
    database = Database(url)
    database.run_transaction_blocking(create_tables)
    cloud = SimulatedCloud("aws", database, bulk=50)

    async def made() -> int:
        return len(await cloud.list_all_vms())

    yield Subject(cloud, cloud.add_fault, made)
    await cloud.close()
    assert cloud.current_concurrency().regions == 0
    database.close()


SUBJECTS: dict[str, Opener] = {"sqlite": _on_sqlite, "postgres": _on_postgres}
