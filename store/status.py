"""The one writer of status: every insert, update and delete of an object's row, with the history lines.

A set of objects that alike go from one status to another takes two statements, however many they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from domain.statetable import NONE, LineEffect
from store.schema import history, objects

Values = dict[str, Any]  # columns, or parameters of a condition

_LINES = sa.insert(history)
_ROWS = sa.insert(objects)


def record(connection: sa.Connection, lines: Sequence[Values]) -> None:
    """Write history lines, made by `history_line`."""
    if lines:
        connection.execute(_LINES, lines)


def create(connection: sa.Connection, rows: Sequence[Values], lines: Sequence[Values] = ()) -> None:
    """Insert new objects and their history lines."""
    if rows:
        connection.execute(_ROWS, rows)
    record(connection, lines)


class ObjectSet:
    """The objects that meet a condition. Its statements are built once: building one costs more than running it.

    `which` has the parameters of the condition. An object whose new status is `None` is deleted.
    """

    def __init__(self, *condition: sa.ColumnElement[bool]) -> None:
        self._condition = condition

    @cached_property
    def update_rows(self) -> sa.Update:
        """Changes the rows."""
        return sa.update(objects).where(*self._condition)

    @cached_property
    def delete_rows(self) -> sa.Delete:
        """Deletes the rows."""
        return sa.delete(objects).where(*self._condition)

    @cached_property
    def departure_lines(self) -> sa.Insert:
        """Writes a line for each object: from its status to the parameter `to`."""
        return self._insert_lines(objects.c.status, sa.bindparam("to", type_=sa.String))

    @cached_property
    def arrival_lines(self) -> sa.Insert:
        """Writes a line for each object: from the status before to its status."""
        return self._insert_lines(objects.c.previous_status, objects.c.status)

    def move(self, connection: sa.Connection, which: Values, line: Values, values: Values) -> int:
        """Move all of them to the status `to` of the line. Returns how many were moved."""
        self.record_departures(connection, which, line)
        return self.change(connection, which, values | {"status": line["to"]})

    def change(self, connection: sa.Connection, which: Values, values: Values, lines: Sequence[Values] = ()) -> int:
        """Change all of them alike, and write these lines. Returns how many were changed."""
        if values.get("status") == NONE:
            changed = self.remove(connection, which)
        else:
            changed = connection.execute(self.update_rows, which | values).rowcount
        record(connection, lines)
        return changed

    def change_each(self, connection: sa.Connection, changes: Sequence[Values], lines: Sequence[Values]) -> None:
        """Change each by parameters and values of its own: one prepared statement for those with the same columns."""
        alike: defaultdict[tuple[str, ...], list[Values]] = defaultdict(list)
        for change in changes:
            alike[tuple(change)].append(change)
        for some in alike.values():
            connection.execute(self.update_rows, some)
        record(connection, lines)

    def remove(self, connection: sa.Connection, which: Values) -> int:
        """Delete all of them. Returns how many there were."""
        return connection.execute(self.delete_rows, which).rowcount

    def record_departures(self, connection: sa.Connection, which: Values, line: Values) -> None:
        """Write a line for each, from its status to the status `to`: before they are moved, or as ignored."""
        connection.execute(self.departure_lines, which | line)

    def record_arrivals(self, connection: sa.Connection, which: Values, line: Values) -> None:
        """Write a line for each, from the status before to its status: after they were moved or created."""
        connection.execute(self.arrival_lines, which | line)

    def _insert_lines(self, source: sa.ColumnElement[str], to: sa.ColumnElement[str]) -> sa.Insert:
        columns = {
            "path": objects.c.path,
            "at": sa.bindparam("at", type_=history.c.at.type),
            "actor": sa.bindparam("actor", type_=sa.String),
            "action": sa.bindparam("action", type_=sa.String),
            "source": source,
            "to": to,
            "epoch": objects.c.epoch,
            "message": sa.bindparam("message", type_=sa.String, value=""),
            "effect": sa.bindparam("effect", type_=sa.String, value=LineEffect.APPLIED.value),
        }
        return sa.insert(history).from_select(list(columns), sa.select(*columns.values()).where(*self._condition))


ONE = ObjectSet(objects.c.path == sa.bindparam("name"))


def set_details(connection: sa.Connection, path: str, **values: Any) -> None:
    """Change what is known of an object besides its status. It has no line in the history."""
    assert "status" not in values
    ONE.change(connection, {"name": path}, values)
