"""The only writer of statuses: inserts, updates and deletes rows of `objects` together with their history lines.

Moving any number of objects from one status to another takes two statements.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningDelete

from domain.statetable import NONE, LineEffect
from store.aliases import insert_aliases
from store.once import mark_all_done
from store.quotas import count_objects
from store.schema import history, objects

ColumnValues = dict[str, Any]  # column values, or parameters of a condition

_INSERT_LINES = sa.insert(history)
_INSERT_OBJECTS = sa.insert(objects)


def record_lines(connection: sa.Connection, lines: Sequence[ColumnValues]) -> None:
    """Inserts history lines, as built by `history_line`."""
    if lines:
        connection.execute(_INSERT_LINES, lines)


def record_ignored_lines(connection: sa.Connection, lines: Sequence[ColumnValues]) -> None:
    """Inserts ignored history lines, each once for its action: an activity that is tried again brings them again."""
    keyed = {f"ignored {_digest_of_line(line)}": line for line in lines}
    new = mark_all_done(connection, keyed)
    record_lines(connection, [line for key, line in keyed.items() if key in new])


def _digest_of_line(line: ColumnValues) -> str:
    told = (str(line[name]) for name in ("epoch", "path", "actor", "action", "source", "to", "message"))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]


def create_objects(connection: sa.Connection, rows: Sequence[ColumnValues], lines: Sequence[ColumnValues] = ()) -> None:
    """Inserts new objects with their ids in the dialects, and their history lines."""
    if rows:
        connection.execute(_INSERT_OBJECTS, rows)
        insert_aliases(connection, rows)
        count_objects(connection, ((row["path"], row["kind"]) for row in rows), 1)
    record_lines(connection, lines)


class ObjectSet:
    """The objects that meet a condition. Its statements are built once, as building one costs more than running it.

    `which` has the parameters of the condition. An object whose new status is `None` is deleted.
    """

    def __init__(self, *condition: sa.ColumnElement[bool]) -> None:
        self._condition = condition

    @cached_property
    def update_statement(self) -> sa.Update:
        """Statement that updates the rows of the set."""
        return sa.update(objects).where(*self._condition)

    @cached_property
    def delete_statement(self) -> ReturningDelete[str, str]:
        """Statement that deletes the rows of the set."""
        return sa.delete(objects).where(*self._condition).returning(objects.c.path, objects.c.kind)

    @cached_property
    def insert_statement_before_move(self) -> sa.Insert:
        """Statement that inserts a history line per object, from its status to the parameter `to`."""
        return self._build_insert_statement(objects.c.status, sa.bindparam("to", type_=sa.String))

    @cached_property
    def insert_statement_after_move(self) -> sa.Insert:
        """Statement that inserts a history line per object, from its previous status to its status."""
        return self._build_insert_statement(objects.c.previous_status, objects.c.status)

    def move_objects(
        self, connection: sa.Connection, which: ColumnValues, line: ColumnValues, values: ColumnValues
    ) -> int:
        """Sets the status of all objects of the set to the `to` of `line`, and writes it as a history line for each.
        Returns how many there were."""
        connection.execute(self.insert_statement_before_move, which | line)
        return self.change_objects(connection, which, values | {"status": line["to"]})

    def change_objects(
        self, connection: sa.Connection, which: ColumnValues, values: ColumnValues, lines: Sequence[ColumnValues] = ()
    ) -> int:
        """Writes the same values to all objects of the set, and these history lines. Returns how many changed."""
        if values.get("status") == NONE:
            changed = self.remove_objects(connection, which)
        else:
            changed = connection.execute(self.update_statement, which | values).rowcount
        record_lines(connection, lines)
        return changed

    def change_each_object(
        self, connection: sa.Connection, changes: Sequence[ColumnValues], lines: Sequence[ColumnValues]
    ) -> None:
        """Writes different values to each object, with one prepared statement per set of columns."""
        alike: defaultdict[tuple[str, ...], list[ColumnValues]] = defaultdict(list)
        for change in changes:
            alike[tuple(change)].append(change)
        for some in alike.values():
            connection.execute(self.update_statement, some)
        record_lines(connection, lines)

    def remove_objects(self, connection: sa.Connection, which: ColumnValues) -> int:
        """Deletes all objects of the set. Returns how many."""
        removed = [(str(path), str(kind)) for path, kind in connection.execute(self.delete_statement, which)]
        count_objects(connection, removed, -1)
        return len(removed)

    def record_lines_after_move(self, connection: sa.Connection, which: ColumnValues, line: ColumnValues) -> None:
        """Writes a history line per object, from its previous status to its status: after a move or creation."""
        connection.execute(self.insert_statement_after_move, which | line)

    def _build_insert_statement(self, source: sa.ColumnElement[str], to: sa.ColumnElement[str]) -> sa.Insert:
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


OBJECT_BY_PATH = ObjectSet(objects.c.path == sa.bindparam("name"))


def update_object_columns(connection: sa.Connection, path: str, **values: Any) -> None:
    """Updates columns of an object other than its status. Writes no history line."""
    assert "status" not in values
    OBJECT_BY_PATH.change_objects(connection, {"name": path}, values)
