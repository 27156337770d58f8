"""Results of statements as typed rows: a statement selects a column for each field of its row, in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from store.schema import ObjectRow, objects

R = TypeVar("R")


def parse_rows(row: Callable[..., R], result: sa.Result[Any]) -> list[R]:
    """Returns the rows of a result, each as a `row`, which has a field for each of its columns."""
    return [row(*values) for values in result]


def parse_row(row: Callable[..., R], result: sa.Result[Any]) -> R | None:
    """Returns the one row of a result, or None."""
    values = result.one_or_none()
    return None if values is None else row(*values)


_OBJECT = sa.select(objects).where(objects.c.path == sa.bindparam("at_path"))
_LOCKED = _OBJECT.with_for_update()


def find_object(connection: sa.Connection, path: str) -> ObjectRow | None:
    """Returns the object at a path; None if there is none."""
    return parse_row(ObjectRow, connection.execute(_OBJECT, {"at_path": path}))


def lock_object(connection: sa.Connection, path: str) -> ObjectRow | None:
    """Returns the object at a path, locked: nobody else changes it before the transaction ends."""
    return parse_row(ObjectRow, connection.execute(_LOCKED, {"at_path": path}))
