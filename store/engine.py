"""One database, SQLite or PostgreSQL, and transactions that run in a thread of their own.

Plain synchronous Core in a thread instead of SQLAlchemy's asyncio layer: a transaction of eight statements is one hop
to a thread instead of eight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pydantic_core
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from domain.errors import StoreUnavailable, brief

T = TypeVar("T")
Watch = Callable[[Callable[..., Any], str], None]  # a transaction, and the moment that it has come to

BUSY_SECONDS = 5  # how long SQLite waits for another process's write
_JSON: dict[str, Any] = {  # faster than the standard library's, and here anyway
    "json_serializer": lambda value: pydantic_core.to_json(value).decode(),
    "json_deserializer": pydantic_core.from_json,
}
POOL = 8  # connections and threads per process on PostgreSQL


class Database:
    """Runs functions of a connection, each as one transaction."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sqlite = url.startswith("sqlite")
        self.watch: Watch | None = None
        self.engine = _sqlite(url) if self.sqlite else _postgres(url)
        # One thread for SQLite: it has one writer at a time anyway, and waiting in Python is cheaper than in SQLite.
        self._threads = ThreadPoolExecutor(1 if self.sqlite else POOL, thread_name_prefix="store")

    async def run(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work` in one transaction. Away, locked or full: StoreUnavailable, and a retry helps."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.run_here, work)

    def run_here(self, work: Callable[[sa.Connection], T]) -> T:
        """The same in the caller's own thread."""
        try:
            with self.engine.begin() as connection:
                result = work(connection)
                if self.watch:
                    self.watch(work, "before-commit")
            if self.watch:
                self.watch(work, "after-commit")
            return result
        except (OperationalError, InterfaceError, PoolTimeout) as error:
            raise StoreUnavailable(f"the store did not answer: {_reason(error)}") from error

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
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgres(url: str) -> sa.Engine:
    return sa.create_engine(
        sa.make_url(url).set(drivername="postgresql+psycopg"),
        **_JSON,
        pool_size=POOL,
        max_overflow=0,
        pool_timeout=10,
        pool_pre_ping=True,  # a connection that died in an outage is dropped, not used
        connect_args={"connect_timeout": 5, "options": "-c statement_timeout=30000 -c lock_timeout=10000"},
    )


def _reason(error: Exception) -> str:
    """The driver's own words, without the statement and its parameters."""
    return brief(str(error.orig) if isinstance(error, DBAPIError) and error.orig else error, 200)
