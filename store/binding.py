"""Binds a process to its store: a database that is swapped for another one while the process runs is not used.

Without it a worker would answer from the wrong records, or write into a SQLite file that nobody else reads.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from domain.errors import StoreUnavailable
from store.engine import Database, is_table_missing
from store.schema import StoreIdentityRow, actions

IDENTITY_KEY = "ratchet_store"  # in a connection's info: the store's id and incarnation when it was opened
NEXT_STEP = "stop every worker; if a backup was restored, run starter migrate --restored; then start them"

# A database, or a table, that was created anew has another oid; a failover to a replica keeps them.
_SELECT_FINGERPRINT = {
    "sqlite": "SELECT id, incarnation, 0, 0 FROM store_identity",
    "postgresql": """SELECT id, incarnation, 'store_identity'::regclass::oid::bigint,
        (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) FROM store_identity""",
}
_SELECT_LAST_EPOCH = sa.select(sa.func.coalesce(sa.func.max(actions.c.epoch), 0))  # retention keeps the highest


class StoreReplaced(StoreUnavailable):
    """The database is not the store that this process began with. A retry helps once the process was started again."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the store was replaced while this process ran: {how}; {NEXT_STEP}")


class _Fingerprint(NamedTuple):
    id: str
    incarnation: int
    table: int
    database: int


class StoreBinding:
    """What this process knows of its store. `replaced` is set once, by whoever notices first."""

    def __init__(self, database: Database, identity: StoreIdentityRow) -> None:
        self.replaced: StoreReplaced | None = None
        self._identity = identity
        self._dialect = database.engine.dialect.name
        self._fingerprint: _Fingerprint | None = None
        self._last_epoch = 0
        file = database.engine.url.database if database.sqlite else None
        self._paths = [Path(file), Path(f"{file}-wal")] if file and file != ":memory:" else []
        self._files: list[tuple[int, int] | None] = []

    def check_database(self, connection: sa.Connection) -> None:
        """Raises StoreReplaced if the store is another one, was created anew, or lacks actions that it had."""
        try:
            row = connection.exec_driver_sql(_SELECT_FINGERPRINT[self._dialect]).first()
            last = int(connection.execute(_SELECT_LAST_EPOCH).scalar_one())
        except DBAPIError as error:
            self._raise_if_table_missing(error.orig)
            raise
        self._compare(row)
        if last < self._last_epoch:
            self._refuse("it lacks the actions since a backup was made, or since a replica was behind")
        self._last_epoch = last

    def check_new_connection(self, connection: Any, record: Any) -> None:
        """Listens for connections of the pool. After a swap on PostgreSQL every connection is a new one."""
        cursor = connection.cursor()
        try:
            cursor.execute(_SELECT_FINGERPRINT[self._dialect])
            self._compare(cursor.fetchone())
        except Exception as error:
            self._raise_if_table_missing(error)
            raise
        finally:
            cursor.close()
            connection.rollback()
        record.info[IDENTITY_KEY] = (self._identity.id, self._identity.incarnation)

    def check_before_transaction(self) -> None:
        """Raises StoreReplaced if that was noticed, or if SQLite's files are other ones: an open one stays usable."""
        if self.replaced:
            raise self.replaced
        if self._files and self._stat_files() != self._files:
            self._refuse("its file was replaced or removed")

    def remember_files(self) -> None:
        """Remembers SQLite's files. The pool keeps a connection open, so the log is not removed and made anew."""
        self._files = self._stat_files()

    def _compare(self, row: Any) -> None:
        if row is None:
            self._refuse("it is empty")
        found, own = _Fingerprint(*row), self._identity
        if found.id != own.id:
            self._refuse(f"it was the store {own.id}, and is the store {found.id}")
        if found.incarnation != own.incarnation:
            self._refuse("it was marked as restored from a backup")
        self._fingerprint = self._fingerprint or found
        if found != self._fingerprint:
            self._refuse("its tables were created anew")

    def _raise_if_table_missing(self, error: BaseException | None) -> None:
        if is_table_missing(error):
            self._refuse("it is empty")

    def _refuse(self, how: str) -> NoReturn:
        self.replaced = self.replaced or StoreReplaced(how)
        raise self.replaced

    def _stat_files(self) -> list[tuple[int, int] | None]:
        return [_inode_of(path) for path in self._paths]


def bind_store(database: Database, identity: StoreIdentityRow) -> StoreBinding:
    """Binds this database's connections to the store of this identity, until the process ends."""
    binding = StoreBinding(database, identity)
    database.engine.dispose()
    sa.event.listen(database.engine, "connect", binding.check_new_connection)
    database.run_transaction_blocking(binding.check_database)
    binding.remember_files()
    database.before_transaction = binding.check_before_transaction
    return binding


def check_same_store(connection: sa.Connection, identity: StoreIdentityRow) -> None:
    """Raises StoreReplaced if a bound connection shows another identity than when it was opened."""
    bound = connection.info.get(IDENTITY_KEY)
    if bound and bound != (identity.id, identity.incarnation):
        raise StoreReplaced(f"it was the store {bound[0]}, and is the store {identity.id} or was restored")


def _inode_of(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
