"""Proves inside a transaction that an action is open. It stays open until the transaction ends.

A proof that is read before a transaction can be old when the transaction begins: the worker may have been frozen
between the two.
"""

from __future__ import annotations

import sqlalchemy as sa

from domain.errors import Superseded
from store.schema import actions

_LOCK_OPEN_ACTION = (
    sa.select(actions.c.epoch)
    .where(actions.c.epoch == sa.bindparam("number"), actions.c.path == sa.bindparam("at_path"))
    .where(actions.c.ended_at.is_(None))
    .with_for_update(read=True)
)


def lock_open_action(connection: sa.Connection, path: str, epoch: int) -> None:
    """Locks the action's row, so that it cannot end meanwhile. Raises Superseded if it has ended."""
    if connection.execute(_LOCK_OPEN_ACTION, {"number": epoch, "at_path": path}).first() is None:
        raise Superseded(f"the action {epoch} on {path} is over", final=True)
