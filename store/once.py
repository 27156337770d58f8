"""Keys of what a run does once, however often it asks: a worker may die after the commit and before its answer.

Rows are kept for longer than a run can wait for a worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store.dbtime import read_database_time
from store.schema import done_once

KEPT = timedelta(days=7)

_INSERT_UNLESS_DONE = {
    "sqlite": sqlite.insert(done_once).on_conflict_do_nothing().returning(done_once.c.key),
    "postgresql": postgresql.insert(done_once).on_conflict_do_nothing().returning(done_once.c.key),
}
_SELECT_KEY = sa.select(done_once.c.key).where(done_once.c.key == sa.bindparam("wanted"))
_DELETE_EXPIRED = sa.delete(done_once).where(done_once.c.expires_at < sa.bindparam("now"))


def is_done(connection: sa.Connection, key: str) -> bool:
    """Tells whether a transaction that was committed has marked this key."""
    return connection.execute(_SELECT_KEY, {"wanted": key}).first() is not None


def mark_done(connection: sa.Connection, key: str) -> bool:
    """Marks a key. False: it was marked before. Of two at once, the second waits for the first one's end."""
    return bool(mark_all_done(connection, [key]))


def mark_all_done(connection: sa.Connection, keys: Iterable[str]) -> set[str]:
    """Marks many keys. Returns those that were not marked before."""
    expires_at = read_database_time(connection) + KEPT
    rows = [{"key": key, "expires_at": expires_at} for key in sorted(set(keys))]  # in one order: no deadlock
    return set(connection.execute(_INSERT_UNLESS_DONE[connection.dialect.name], rows).scalars()) if rows else set()


def forget_expired_keys(connection: sa.Connection, now: datetime) -> None:
    """Removes the keys that no run asks for any more."""
    connection.execute(_DELETE_EXPIRED, {"now": now})
