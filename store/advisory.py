"""Serialises transactions on overlapping paths, so that the facts of a decision still hold when it is written."""

from __future__ import annotations

import sqlalchemy as sa

from domain.locks import EXCLUSIVE_MODES, LockMode


def acquire_advisory_locks(connection: sa.Connection, want: dict[str, LockMode]) -> None:
    """Takes PostgreSQL advisory locks on the paths until the transaction ends; on SQLite writers are serial anyway."""
    if connection.dialect.name != "postgresql":
        return
    alone, together = sa.func.pg_advisory_xact_lock, sa.func.pg_advisory_xact_lock_shared
    taking = [
        (alone if mode in EXCLUSIVE_MODES else together)(sa.func.hashtextextended(path, 0))
        for path, mode in want.items()
    ]
    connection.execute(sa.select(*taking))
