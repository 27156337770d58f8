"""The object at a path, read or locked."""

from __future__ import annotations

import sqlalchemy as sa

from store.schema import ObjectRow, objects

_OBJECT = sa.select(objects).where(objects.c.path == sa.bindparam("at_path"))
_LOCKED = _OBJECT.with_for_update()


def find_object(connection: sa.Connection, path: str) -> ObjectRow | None:
    """Returns the object at a path; None if there is none."""
    row = connection.execute(_OBJECT, {"at_path": path}).one_or_none()
    return ObjectRow(*row) if row else None


def lock_object(connection: sa.Connection, path: str) -> ObjectRow | None:
    """Returns the object at a path, locked: nobody else changes it before the transaction ends."""
    row = connection.execute(_LOCKED, {"at_path": path}).one_or_none()
    return ObjectRow(*row) if row else None
