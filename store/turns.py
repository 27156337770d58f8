"""Transactions on overlapping paths take turns, so that what one of them decides on is still so when it writes."""

from __future__ import annotations

import sqlalchemy as sa

from domain.locks import EXCLUSIVE, Mode


def serialise(connection: sa.Connection, want: dict[str, Mode]) -> None:
    """On PostgreSQL by advisory locks until the transaction ends; on SQLite all writers take turns anyway."""
    if connection.dialect.name != "postgresql":
        return
    alone, together = sa.func.pg_advisory_xact_lock, sa.func.pg_advisory_xact_lock_shared
    taking = [
        (alone if mode in EXCLUSIVE else together)(sa.func.hashtextextended(path, 0)) for path, mode in want.items()
    ]
    connection.execute(sa.select(*taking))
