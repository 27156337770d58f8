"""History lines in an order that can be followed: no line ever appears behind one that was already read.

PostgreSQL hands out `seq` before a transaction commits, so a later line may be seen first. Lines are therefore ordered
by their transaction, and read only once every transaction up to theirs has ended.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.events import FIRST_CURSOR, Event, EventCursor
from store.queries import history_line_of_row, select_history_lines
from store.schema import history

_ENDED: sa.ColumnElement[int] = sa.literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
_POSITION = sa.tuple_(history.c.xid, history.c.seq)


def read_newest_position(connection: sa.Connection) -> EventCursor:
    """Returns the position of the newest history line of an ended transaction, from which to follow events."""
    query = filter_ended_transactions(connection, sa.select(history.c.xid, history.c.seq).where(history.c.xid >= 0))
    row = connection.execute(query.order_by(history.c.xid.desc(), history.c.seq.desc()).limit(1)).one_or_none()
    return EventCursor(*row) if row else FIRST_CURSOR


def list_events_after(connection: sa.Connection, cursor: EventCursor, limit: int) -> list[Event]:
    """Returns the lines after a position; Refused if the line at that position is gone, as lines would be missed."""
    if cursor != FIRST_CURSOR:
        written = connection.execute(sa.select(history.c.xid).where(history.c.seq == cursor.seq)).scalar_one_or_none()
        if written != cursor.xid:
            raise Refused(
                Category.NOT_FOUND,
                f"there is no event {cursor}: it was pruned, or the store was restored from a backup",
                "list the objects anew, then follow events without a position",
            )
    after = sa.tuple_(sa.literal(cursor.xid, sa.BigInteger), sa.literal(cursor.seq, sa.BigInteger))
    query = filter_ended_transactions(connection, select_history_lines().where(after < _POSITION))
    rows = connection.execute(query.order_by(history.c.xid, history.c.seq).limit(limit)).mappings()
    return [
        Event(
            id=str(EventCursor(row["xid"], row["seq"])),
            line=history_line_of_row(row),
        )
        for row in rows
    ]


def filter_ended_transactions(connection: sa.Connection, query: sa.Select[Any]) -> sa.Select[Any]:
    """Restricts a query of lines to those before which no other line can still appear."""
    return query.where(history.c.xid < _ENDED) if connection.dialect.name == "postgresql" else query
