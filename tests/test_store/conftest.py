"""Databases for the tests of the store: a fresh SQLite file, or a PostgreSQL with empty tables."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from store.engine import Database
from store.migrate import migrate_schema
from store.schema import metadata
from tests.stack import fresh_database
from tests.test_store.crowd import fill
from tests.test_store.driver import StoreDriver

Engines = dict[str, list[sa.Engine]]  # that nobody uses, by URL

LARGE = 2**16  # bytes of a table, with what was deleted from it
IDENTITY = "store_identity"  # the line of it comes with the tables


@pytest.fixture(scope="session")
def empty_postgres(postgres_url: str) -> Callable[[], str]:
    """Makes databases without tables."""
    return lambda: fresh_database(postgres_url)


@pytest.fixture(scope="session")
def crowded_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to copy: it takes long to fill."""
    file = tmp_path_factory.mktemp("crowded") / "inventory.db"
    _crowded(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def crowded_postgres(empty_postgres: Callable[[], str]) -> str:
    """A database to copy, which nobody is connected to."""
    return _crowded(empty_postgres())


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def crowded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_url: str
) -> Iterator[Database]:
    """A store with 40,000 lines in each table that grows with use; the database was told nothing about them.

    Each module has its own copy, which it may change.
    """
    if request.param == "sqlite":
        file = tmp_path_factory.mktemp("crowded") / "inventory.db"
        shutil.copy(request.getfixturevalue("crowded_sqlite"), file)
        url = f"sqlite:///{file}"
    else:
        url = fresh_database(postgres_url, template=request.getfixturevalue("crowded_postgres"))
    database = Database(url)
    yield database
    database.close()


def _crowded(url: str) -> str:
    database = Database(url)
    migrate_schema(database)
    database.run_transaction_blocking(fill)
    database.close()
    return url


@pytest.fixture(scope="session")
def migrated_postgres(empty_postgres: Callable[[], str]) -> str:
    return _migrated(empty_postgres())


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("template") / "ratchet.db"
    _migrated(f"sqlite:///{file}")
    return file


def _migrated(url: str) -> str:
    database = Database(url)
    migrate_schema(database)
    database.close()
    return url


@pytest.fixture
def sqlite_url(migrated_sqlite: Path) -> str:
    """A new file where the last test had its own."""
    file = migrated_sqlite.with_name("copy.db")
    for left in ("", "-wal", "-shm"):
        file.with_name(f"{file.name}{left}").unlink(missing_ok=True)
    shutil.copy(migrated_sqlite, file)
    return f"sqlite:///{file}"


@pytest.fixture(scope="session")
def emptying(migrated_postgres: str) -> Iterator[Database]:
    """Stays connected between tests: to connect takes longer than to empty."""
    database = Database(migrated_postgres, pool=1)
    yield database
    database.close()


@pytest.fixture
def emptied_postgres_url(emptying: Database) -> str:
    emptying.run_transaction_blocking(_empty_tables)
    return emptying.url


def _empty_tables(connection: sa.Connection) -> None:
    """Leaves the tables as a migration does. A TRUNCATE makes new files for each table, and takes long: it is for those
    that have grown.
    """
    looks = (
        f"SELECT '{name}', pg_relation_size('{name}') WHERE EXISTS (SELECT FROM {name})"
        for name in metadata.tables
        if name != IDENTITY
    )
    filled = connection.execute(sa.text(" UNION ALL ".join(looks))).all()
    for name, size in filled:
        connection.execute(sa.text(f"DELETE FROM {name}" if size < LARGE else f"TRUNCATE {name} RESTART IDENTITY"))
    connection.execute(
        sa.text(
            "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) "
            "FROM pg_sequences WHERE last_value IS NOT NULL"
        )
    )


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """A database with tables and nothing in them, of each kind."""
    url: str = request.getfixturevalue({"sqlite": "sqlite_url", "postgres": "emptied_postgres_url"}[request.param])
    return url


@pytest.fixture(scope="session")
def engines() -> Engines:
    return defaultdict(list)


@contextmanager
def _opened(url: str, engines: Engines) -> Iterator[StoreDriver]:
    """A driver whose engine is kept, without its connections: a new one compiles every statement anew, which is most of
    what a short test takes.
    """
    driver = StoreDriver(url)
    if engines[url]:
        driver.database.engine = engines[url].pop()
    yield driver
    driver.close()
    engines[url].append(driver.database.engine)


@pytest.fixture
def driver(store_url: str, engines: Engines) -> Iterator[StoreDriver]:
    """An empty inventory."""
    with _opened(store_url, engines) as driver:
        yield driver


@pytest.fixture
def rival(store_url: str, engines: Engines) -> Iterator[StoreDriver]:
    """The same inventory as another process would have it: its own file handle or connections."""
    with _opened(store_url, engines) as driver:
        yield driver


@pytest.fixture
def pair(emptied_postgres_url: str, engines: Engines) -> Iterator[tuple[StoreDriver, StoreDriver]]:
    """Two processes on one PostgreSQL, where a transaction can be in the middle of another one."""
    with _opened(emptied_postgres_url, engines) as one, _opened(emptied_postgres_url, engines) as other:
        yield one, other
