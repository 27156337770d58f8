"""One database, SQLite or PostgreSQL, and transactions that run in a thread of their own.

Plain synchronous Core in a thread instead of SQLAlchemy's asyncio layer: a transaction of eight statements is one hop
to a thread instead of eight.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pydantic_core
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from domain.errors import Category, Refused, StoreUnavailable, one_line

T = TypeVar("T")

BUSY_SECONDS = 5  # how long SQLite waits for another process's write
_JSON: dict[str, Any] = {  # faster than the standard library's, and here anyway
    "json_serializer": lambda value: pydantic_core.to_json(value).decode(),
    "json_deserializer": pydantic_core.from_json,
}
POOL = 8  # connections and threads per process on PostgreSQL
TRIES = 5  # of a transaction that PostgreSQL gave up in favour of another one

# What PostgreSQL calls its errors. A transaction that lost a race was rolled back for sure: it is tried again here.
LOST_RACES = {"40001", "40P01"}  # serialization failure, deadlock
READ_ONLY = "25006"  # a standby: it becomes writable, or is replaced
NO_PERMISSION = {"42501", "3F000"}  # the latter: not even a schema to make tables in

# A connection through which nothing comes any more is noticed in half a minute, not in two hours.
_CONNECT: dict[str, Any] = {
    "connect_timeout": 5,
    "application_name": "ratchet",
    "options": "-c statement_timeout=30000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000",
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

ONLY_READS = "ratchet_only_reads"
_SNAPSHOT: dict[bool, dict[str, Any]] = {  # on SQLite?
    True: {ONLY_READS: True},  # in WAL mode readers see what was committed when they began, and lock nobody out
    False: {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
}


class Database:
    """Runs functions of a connection, each as one transaction. A URL that cannot be one is Refused."""

    def __init__(self, url: str, pool: int = POOL) -> None:
        self.url = url
        parsed = _checked(url)
        self.sqlite = parsed.get_backend_name() == "sqlite"
        self.engine = _sqlite(url) if self.sqlite else _postgres(parsed, pool)
        # One thread for SQLite: it has one writer at a time anyway, and waiting in Python is cheaper than in SQLite.
        self._threads = ThreadPoolExecutor(1 if self.sqlite else pool, thread_name_prefix="store")

    async def run(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work` in one transaction. Away, locked or full: StoreUnavailable, and a retry helps."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.run_here, work)

    def run_here(self, work: Callable[[sa.Connection], T]) -> T:
        """The same in the caller's own thread."""
        for attempt in range(1, TRIES + 1):
            try:
                with self.engine.begin() as connection:
                    return work(connection)
            except (DBAPIError, PoolTimeout) as error:
                if _state(error) not in LOST_RACES or attempt == TRIES:
                    raise _translate_error(error) from error
                time.sleep(random.uniform(0, 0.02 * 2**attempt))  # noqa: S311  spreads load, guards nothing
        raise AssertionError("the last try either returns or raises")

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work`, which only reads, over one snapshot, however long it takes. Nobody waits for it.

        It has a thread of its own, as the others' are for transactions that are short.
        """
        return await asyncio.to_thread(self.read_here, work)

    def read_here(self, work: Callable[[sa.Connection], T]) -> T:
        """The same in the caller's own thread."""
        try:
            with self.engine.connect().execution_options(**_SNAPSHOT[self.sqlite]) as connection, connection.begin():
                return work(connection)
        except (DBAPIError, PoolTimeout) as error:
            raise _translate_error(error) from error

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.engine.dispose()


def _sqlite(url: str) -> sa.Engine:
    database = sa.make_url(url).database
    if database and database != ":memory:":
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        url, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False}, pool_reset_on_return=None, **_JSON
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in (f"busy_timeout={BUSY_SECONDS * 1000}", "journal_mode=WAL", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # Take the write lock at once: a read that later turns into a write would fail when another writer came between.
        only_reads = connection.get_execution_options().get(ONLY_READS)
        connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")

    return engine


def _postgres(url: sa.URL, pool: int) -> sa.Engine:
    try:
        return sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            **_JSON,
            isolation_level="READ COMMITTED",  # whatever the server's default: who waited for a lock sees what is now
            pool_size=pool,
            max_overflow=0,
            pool_timeout=10,
            pool_recycle=1800,  # behind a proxy or a balancer old connections may lead to the wrong server
            pool_pre_ping=True,  # a connection that died in an outage is dropped, not used
            connect_args=_CONNECT,
        )
    except ModuleNotFoundError as error:
        raise Refused(
            Category.INVALID, "there is no PostgreSQL driver on this machine", "install the extra `postgres`"
        ) from error


def _checked(url: str) -> sa.URL:
    """The URL in its parts. It may have a password in it, so it is not shown when it is wrong."""
    written = "write RATCHET_STORE_URL as postgresql://user:password@host/name, or sqlite:///file"
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError) as error:
        raise Refused(Category.INVALID, "the store's URL cannot be read", written) from error
    if (found := parsed.get_backend_name()) not in ("sqlite", "postgresql"):
        raise Refused(Category.INVALID, f"the store cannot be kept in {found[:40]!r}", written)
    return parsed


def _translate_error(error: Exception) -> Exception:
    """What an error of the database means to us; a bug stays what it is."""
    if _state(error) in NO_PERMISSION:
        return Refused(
            Category.INVALID,
            f"the store does not let us: {_reason(error)}",
            "give the user of RATCHET_STORE_URL the right to create and change tables in that database",
        )
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout) or _state(error) == READ_ONLY:
        return StoreUnavailable(f"the store did not answer: {_reason(error)}")
    return error


def _state(error: Exception) -> str:
    """PostgreSQL's five characters for what went wrong; nothing on SQLite, or if there was no server to say it."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


def _reason(error: Exception) -> str:
    """The driver's own words, without the statement and its parameters."""
    return one_line(str(error.orig) if isinstance(error, DBAPIError) and error.orig else error, 200)
