"""The store away, locked or full: StoreUnavailable, nothing half written, and it works again afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from domain.errors import StoreUnavailable
from domain.model import Admission
from store import begin, engine
from store.engine import Database
from store.schema import objects
from tests.test_store.driver import EVERYBODY, FRONT_1, HOOKS, WEB, StoreDriver, claim
from workers.sealedhistory import export_history, verify_history
from workers.settings import WorkerSettings


@pytest.fixture
def impatient(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreDriver]:
    """SQLite, waiting for others no longer than a test can."""
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_SECONDS", 0.05)
    driver = StoreDriver(sqlite_url)
    yield driver
    driver.close()


@pytest.fixture
def remote(emptied_postgres_url: str) -> Iterator[StoreDriver]:
    """PostgreSQL only."""
    driver = StoreDriver(emptied_postgres_url)
    yield driver
    driver.close()


async def test_a_locked_file_is_unavailable_until_it_is_free(impatient: StoreDriver) -> None:
    await impatient.make()
    before = await impatient.dump()
    other = sqlite3.connect(str(impatient.database.engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="the store did not answer: database is locked"):
        await impatient.begin(WEB, "suspend")
    assert (await impatient.inventory.read_object(WEB)).path == WEB, "readers do not wait for a writer"
    other.execute("ROLLBACK")
    other.close()
    assert await impatient.dump() == before
    assert (await impatient.begin(WEB, "suspend")).grant


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_store_without_tables_says_how_to_create_them(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/new.db" if kind == "sqlite" else request.getfixturevalue("empty_postgres")()
    settings = WorkerSettings(home=tmp_path, store_url=url)
    for read in (lambda: verify_history(settings), lambda: list(export_history(settings))):
        with pytest.raises(StoreUnavailable, match="lacks a table, create it with `starter migrate`"):
            read()
    driver = StoreDriver(url)
    with pytest.raises(StoreUnavailable, match="starter migrate"):
        await driver.begin(WEB, "suspend")
    driver.close()


async def test_a_text_that_speaks_of_a_missing_table_is_not_taken_for_one(driver: StoreDriver) -> None:
    """The text of an error of SQLAlchemy has the statement's values in it."""
    await driver.make()

    def insert_again(connection: sa.Connection) -> None:
        row = connection.execute(sa.select(objects).where(objects.c.path == WEB)).mappings().one()
        connection.execute(sa.insert(objects), {**row, "error": "no such table"})

    with pytest.raises(IntegrityError):
        await driver.database.run_transaction(insert_again)


async def test_a_full_disk_is_unavailable_and_loses_nothing(impatient: StoreDriver) -> None:
    spec = {"subGroups": [{"name": "big", "subGroupSize": 2_000, "csp": "aws", "region": "eu-1"}]}
    grant = (await impatient.begin("ns:default:mci:big", "create", spec=spec)).grant
    assert grant
    before = await impatient.dump()

    def shrink(connection: sa.Connection) -> None:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    def grow(connection: sa.Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count=100000")

    await impatient.database.run_transaction(shrink)
    with pytest.raises(StoreUnavailable, match="database or disk is full"):
        await impatient.born(grant)
    assert await impatient.dump() == before
    await impatient.database.run_transaction(grow)
    assert (await impatient.born(grant)).targets == 2_000


async def test_a_commit_that_fails_is_rolled_back_and_its_connection_works_again(impatient: StoreDriver) -> None:
    """SQLAlchemy leaves the rollback to the pool. Without it the file is locked for as long as the process lives."""
    await impatient.make()

    def promise(connection: sa.Connection) -> None:
        late = "REFERENCES objects (path) DEFERRABLE INITIALLY DEFERRED"
        connection.exec_driver_sql(f"CREATE TABLE promises (path VARCHAR(500) {late})")

    def break_promise(connection: sa.Connection) -> None:
        connection.exec_driver_sql("INSERT INTO promises VALUES ('ns:default:mci:nowhere')")

    impatient.database.run_transaction_blocking(promise)
    pooled = impatient.database.engine.raw_connection()
    pooled.cursor().execute("PRAGMA foreign_keys=ON")  # within a transaction it does nothing
    pooled.close()
    with pytest.raises(sa.exc.IntegrityError):
        impatient.database.run_transaction_blocking(break_promise)
    assert (await impatient.begin(WEB, "suspend")).grant
    assert (await impatient.inventory.read_object(WEB)).path == WEB


def test_a_place_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    directory = tmp_path / "ratchet.db"
    directory.mkdir()
    database = Database(f"sqlite:///{directory}")
    with pytest.raises(StoreUnavailable, match="unable to open database file"):
        database.run_transaction_blocking(lambda connection: None)
    database.close()


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    database = Database(f"postgresql://postgres@/postgres?host={tmp_path}")
    with pytest.raises(StoreUnavailable, match="the store did not answer"):
        database.run_transaction_blocking(lambda connection: None)
    database.close()


@pytest.fixture
def doors(postgres_url: str, emptied_postgres_url: str) -> tuple[sa.Engine, str]:
    """A way in by another database of the same server, and the name of the one that is used."""
    url = sa.make_url(postgres_url).set(drivername="postgresql+psycopg")
    outside = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    return outside, str(sa.make_url(emptied_postgres_url).database)


def cut(doors: tuple[sa.Engine, str]) -> None:
    """End every connection to the database."""
    outside, name = doors
    with outside.connect() as connection:
        ended = sa.text("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = :name")
        connection.execute(ended, {"name": name}).all()


def admit(doors: tuple[sa.Engine, str], anybody: bool) -> None:
    outside, name = doors
    with outside.connect() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {anybody}")


async def test_a_database_that_went_away_is_unavailable_until_it_is_back(
    doors: tuple[sa.Engine, str], remote: StoreDriver
) -> None:
    await remote.make()
    before = await remote.dump()
    admit(doors, False)
    cut(doors)
    try:
        with pytest.raises(StoreUnavailable, match="is not currently accepting connections"):
            await remote.begin(WEB, "suspend")
    finally:
        admit(doors, True)
    assert await remote.dump() == before
    assert (await remote.begin(WEB, "suspend")).grant


async def test_connections_that_died_meanwhile_are_not_used(doors: tuple[sa.Engine, str], remote: StoreDriver) -> None:
    await remote.make()
    cut(doors)
    assert (await remote.begin(WEB, "suspend")).grant


async def test_a_connection_that_dies_in_a_begin_leaves_nothing_of_it(
    doors: tuple[sa.Engine, str], remote: StoreDriver
) -> None:
    await remote.make()
    before = await remote.dump()
    asked = claim(FRONT_1, "suspend", run="r1")

    def dying(connection: sa.Connection) -> Admission:
        admission = begin.begin_action(connection, HOOKS, asked, EVERYBODY)
        cut(doors)
        return admission

    with pytest.raises(StoreUnavailable):
        await remote.database.run_transaction(dying)
    assert await remote.dump() == before
    assert (await remote.inventory.begin_action(asked)).grant  # the retry of the same run


async def test_the_reason_tells_nothing_of_what_was_being_written(impatient: StoreDriver) -> None:
    secret = claim(WEB, "suspend", reason="hunter2")
    other = sqlite3.connect(str(impatient.database.engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        await impatient.inventory.begin_action(secret)
    other.close()
    assert "hunter2" not in str(caught.value)
    assert "SELECT" not in str(caught.value).upper()
