"""Serialises transactions on overlapping paths, so that the facts of a decision still hold when it is written."""

from __future__ import annotations

import sqlalchemy as sa

from domain.locks import EXCLUSIVE_MODES, LockMode

_ACQUIRE_IN_ORDER = sa.text(  # one statement for any number of paths: building one costs more than running it
    "SELECT CASE WHEN alone THEN pg_advisory_xact_lock(hashtextextended(path, 0)) "
    "ELSE pg_advisory_xact_lock_shared(hashtextextended(path, 0)) END "
    "FROM unnest(CAST(:paths AS text[]), CAST(:alone AS boolean[])) AS wanted (path, alone)"
)


def acquire_advisory_locks(connection: sa.Connection, want: dict[str, LockMode]) -> None:
    """Takes PostgreSQL advisory locks on the paths until the transaction ends; on SQLite writers are serial anyway."""
    if connection.dialect.name == "postgresql":
        alone = [mode in EXCLUSIVE_MODES for mode in want.values()]
        connection.execute(_ACQUIRE_IN_ORDER, {"paths": list(want), "alone": alone})
