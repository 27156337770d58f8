"""Serialises transactions on overlapping paths, so that the facts of a decision still hold when it is written.

On SQLite writers are serial anyway.
"""

from __future__ import annotations

import sqlalchemy as sa

from domain.locks import EXCLUSIVE_MODES, LockMode

_ACQUIRE_IN_ORDER = sa.text(  # one statement for any number of paths: building one costs more than running it
    "SELECT CASE WHEN alone THEN pg_advisory_xact_lock(hashtextextended(path, 0)) "
    "ELSE pg_advisory_xact_lock_shared(hashtextextended(path, 0)) END "
    "FROM unnest(CAST(:paths AS text[]), CAST(:alone AS boolean[])) AS wanted (path, alone)"
)


def acquire_advisory_locks(connection: sa.Connection, want: dict[str, LockMode]) -> None:
    """Takes PostgreSQL advisory locks on the paths until the transaction ends."""
    if connection.dialect.name == "postgresql":
        alone = [mode in EXCLUSIVE_MODES for mode in want.values()]
        connection.execute(_ACQUIRE_IN_ORDER, {"paths": list(want), "alone": alone})


def acquire_key_lock(connection: sa.Connection, key: str) -> None:
    """Takes one PostgreSQL advisory lock until the transaction ends, for decisions that no path stands for."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(key, 0))))
