"""Serialises transactions on overlapping paths, so that the facts of a decision still hold when it is written."""

from __future__ import annotations

import sqlalchemy as sa

from domain.locks import EXCLUSIVE_MODES, LockMode, locks_needed_for
from domain.registry import ResolvedRequest
from store.hooks import Hooks
from store.rows import find_object


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


def acquire_hook_locks(
    connection: sa.Connection, hook: Hooks, asked: ResolvedRequest, want: dict[str, LockMode]
) -> dict[str, LockMode]:
    """Takes the locks that the family's hook asks for as well. Returns all that the action needs."""
    path = asked.request.path
    more = hook.extra_locks(connection, asked.request, find_object(connection, path)) if hook.extra_locks else ()
    if more:
        want = locks_needed_for([path, *more], asked.is_hidden)
        acquire_advisory_locks(connection, want)
    return want
