"""The objects at a path or at several, read or locked."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from domain.statetable import NONE
from store.schema import ObjectRow, objects

_OBJECT = sa.select(objects).where(objects.c.path == sa.bindparam("at_path"))
_LOCKED = _OBJECT.with_for_update()
_THESE = sa.select(objects).where(objects.c.path.in_(sa.bindparam("paths", expanding=True)))
LOCK_AT_REST = (  # for what is seen of objects outside of actions
    sa.select(objects.c.path, objects.c.status, objects.c.epoch)
    .where(objects.c.path.in_(sa.bindparam("names", expanding=True)), objects.c.target_action == NONE)
    .order_by(objects.c.path)
    .with_for_update()
)


def find_object(connection: sa.Connection, path: str) -> ObjectRow | None:
    """Returns the object at a path; None if there is none."""
    row = connection.execute(_OBJECT, {"at_path": path}).one_or_none()
    return ObjectRow(*row) if row else None


def lock_object(connection: sa.Connection, path: str) -> ObjectRow | None:
    """Returns the object at a path, locked: nobody else changes it before the transaction ends."""
    row = connection.execute(_LOCKED, {"at_path": path}).one_or_none()
    return ObjectRow(*row) if row else None


def find_objects(connection: sa.Connection, paths: Iterable[str]) -> list[ObjectRow]:
    """Returns the objects that exist at these paths."""
    return [ObjectRow(*row) for row in connection.execute(_THESE, {"paths": list(paths)})]
