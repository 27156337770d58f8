"""The database, SQLite or PostgreSQL, and transactions that run in a thread.

Uses synchronous SQLAlchemy Core in threads: a transaction of eight statements is one hop to a thread, not eight as with
SQLAlchemy's asyncio layer.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pydantic_core
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from domain.errors import Category, Refused, StoreUnavailable, format_one_line
from store.prepared import PreparedConnection

T = TypeVar("T")

BUSY_TIMEOUT_SECONDS = 5  # how long SQLite waits for another process's write
_JSON_OPTIONS: dict[str, Any] = {  # faster than the standard library's json
    "json_serializer": lambda value: pydantic_core.to_json(value).decode(),
    "json_deserializer": pydantic_core.from_json,
}
POOL_SIZE = 8  # connections and threads per process on PostgreSQL
POOL_TIMEOUT_SECONDS = 10  # how long a thread waits for a connection of the pool
MAX_TRIES = 5  # of a transaction that lost a race

# SQLSTATE codes. A transaction that lost a race was rolled back for sure, so it is tried again here.
RETRYABLE_SQLSTATES = {"40001", "40P01"}  # serialization failure, deadlock
NO_TABLE_SQLSTATE = "42P01"
READ_ONLY_SQLSTATE = "25006"  # a standby: it becomes writable, or is replaced
NO_PERMISSION_SQLSTATES = {"42501", "3F000"}  # the latter: there is no schema to create tables in

# A dead connection is noticed in half a minute; the default is two hours.
_CONNECT_OPTIONS: dict[str, Any] = {
    "connect_timeout": 5,
    "application_name": "ratchet",
    "options": "-c statement_timeout=30000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000",
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

READ_ONLY_OPTION = "ratchet_only_reads"
_SNAPSHOT_OPTIONS: dict[bool, dict[str, Any]] = {  # by Database.sqlite
    True: {READ_ONLY_OPTION: True},  # in WAL mode a reader has a snapshot and blocks no writer
    False: {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
}


class LostRace(StoreUnavailable):
    """What a transaction had read before it took its locks was no longer true when it had them: it is tried again."""


class Database:
    """Runs functions of a connection, each as one transaction. Refuses a malformed URL."""

    def __init__(self, url: str, pool: int = POOL_SIZE) -> None:
        self.url = url
        parsed = _parse_url(url)
        self.sqlite = parsed.get_backend_name() == "sqlite"
        self.engine = _sqlite_engine(url) if self.sqlite else _postgres_engine(parsed, pool)
        # One thread for SQLite: it has one writer at a time anyway, and waiting in Python is cheaper than in SQLite.
        self.before_transaction: Callable[[], None] = lambda: None  # see store/binding.py
        self._threads = ThreadPoolExecutor(1 if self.sqlite else pool, thread_name_prefix="store")

    async def run_transaction(self, work: Callable[[sa.Connection], T]) -> T:
        """Runs `work` as one transaction. Raises StoreUnavailable if the database is away, locked or full."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.run_transaction_blocking, work)

    def run_transaction_blocking(self, work: Callable[[sa.Connection], T]) -> T:
        """Runs `work` as one transaction in the caller's thread; retries it after a lost race."""
        self.before_transaction()
        for attempt in range(1, MAX_TRIES + 1):
            try:
                with PreparedConnection(self.engine) as connection, connection.begin():
                    return work(connection)
            except (DBAPIError, PoolTimeout, LostRace) as error:
                lost = isinstance(error, LostRace) or _sqlstate_of(error) in RETRYABLE_SQLSTATES
                if not lost or attempt == MAX_TRIES:
                    raise _translate_error(error) from error
                time.sleep(random.uniform(0, 0.02 * 2**attempt))  # noqa: S311  spreads load, guards nothing
        raise AssertionError("the last try either returns or raises")

    async def run_in_snapshot(self, work: Callable[[sa.Connection], T]) -> T:
        """Runs `work` over one read-only snapshot, in a thread outside the pool: it may take long and blocks nobody."""
        return await asyncio.to_thread(self.run_in_snapshot_blocking, work)

    def run_in_snapshot_blocking(self, work: Callable[[sa.Connection], T]) -> T:
        """Runs `work` over one read-only snapshot in the caller's thread."""
        with self.open_snapshot() as connection:
            return work(connection)

    @contextmanager
    def open_snapshot(self) -> Iterator[sa.Connection]:
        """Opens one read-only snapshot, for those who read as they go."""
        self.before_transaction()
        try:
            with (
                self.engine.connect().execution_options(**_SNAPSHOT_OPTIONS[self.sqlite]) as connection,
                connection.begin(),
            ):
                yield connection
        except (DBAPIError, PoolTimeout) as error:
            raise _translate_error(error) from error

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.engine.dispose()


def _sqlite_engine(url: str) -> sa.Engine:
    database, pool = sa.make_url(url).database, dict[str, Any]()
    if database and database != ":memory:":  # in memory there is one connection per thread, and nothing to wait for
        Path(database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        pool["pool_timeout"] = POOL_TIMEOUT_SECONDS
    engine = sa.create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
        **pool,
        **_JSON_OPTIONS,
    )

    @sa.event.listens_for(engine, "connect")
    def configure_connection(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the listener below sends BEGIN
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_SECONDS * 1000}")
        _enable_wal(connection)
        connection.execute("PRAGMA synchronous=NORMAL")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # Take the write lock at once: a read that later turns into a write would fail when another writer came between.
        only_reads = connection.get_execution_options().get(READ_ONLY_OPTION)
        connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")

    return engine


def _enable_wal(connection: Any) -> None:
    """Switches a new file to WAL. SQLite itself does not wait here for another process that writes."""
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.005, 0.05))  # noqa: S311  spreads load, guards nothing


def _postgres_engine(url: sa.URL, pool: int) -> sa.Engine:
    try:
        return sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            **_JSON_OPTIONS,
            isolation_level="READ COMMITTED",  # after waiting for a lock, read the rows as they are then
            pool_size=pool,
            max_overflow=0,
            pool_timeout=POOL_TIMEOUT_SECONDS,
            pool_recycle=1800,  # behind a proxy or a balancer old connections may lead to the wrong server
            pool_pre_ping=True,  # a connection that died in an outage is dropped, not used
            connect_args=_CONNECT_OPTIONS,
        )
    except ModuleNotFoundError as error:
        raise Refused(
            Category.INVALID, "there is no PostgreSQL driver on this machine", "install the extra `postgres`"
        ) from error


def _parse_url(url: str) -> sa.URL:
    """Parses the store's URL. Its errors never quote the URL, which may contain a password."""
    written = "write RATCHET_STORE_URL as postgresql://user:password@host/name, or sqlite:///file"
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError) as error:
        raise Refused(Category.INVALID, "the store's URL cannot be read", written) from error
    if (found := parsed.get_backend_name()) not in ("sqlite", "postgresql"):
        raise Refused(Category.INVALID, f"the store cannot be kept in {found[:40]!r}", written)
    return parsed


def _translate_error(error: Exception) -> Exception:
    """Translates a database error into Refused or StoreUnavailable; returns a bug unchanged."""
    if _sqlstate_of(error) in NO_PERMISSION_SQLSTATES:
        return Refused(
            Category.INVALID,
            f"the store denies access: {_driver_message(error)}",
            "give the user of RATCHET_STORE_URL the right to create and change tables in that database",
        )
    if is_table_missing(getattr(error, "orig", None)):
        return StoreUnavailable(f"the store lacks a table, create it with `starter migrate`: {_driver_message(error)}")
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout) or _sqlstate_of(error) == READ_ONLY_SQLSTATE:
        return StoreUnavailable(f"the store did not answer: {_driver_message(error)}")
    return error


def is_table_missing(driver_error: BaseException | None) -> bool:
    """Tells whether a statement failed because its table does not exist."""
    return getattr(driver_error, "sqlstate", None) == NO_TABLE_SQLSTATE or "no such table" in str(driver_error)


def _sqlstate_of(error: Exception) -> str:
    """Returns PostgreSQL's five-character SQLSTATE, or an empty string."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


def _driver_message(error: Exception) -> str:
    """Returns the driver's message without the statement and its parameters."""
    return format_one_line(str(error.orig) if isinstance(error, DBAPIError) and error.orig else error, 200)
