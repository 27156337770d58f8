"""Epochs: the numbers of actions. They rise over all objects, and never go back.

A number is at least the clock in microseconds. A store that was restored from a backup, or a replica that took over,
has forgotten its last actions, but not the time: their numbers are not used again, nor are the tokens made from them.
A clock that was set back costs nothing: then the last number known counts on.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from store.clock import MICROS, MICROS_ON_SQLITE
from store.schema import actions

_LAST = sa.select(sa.func.coalesce(sa.func.max(actions.c.epoch), 0)).scalar_subquery()
# Two that begin at the same moment can come to one number. The later one waits for the end of the other's transaction,
# writes nothing, and tries again; a begin that comes after another's commit sees it in any case.
_INSERT = (
    postgresql.insert(actions)
    .values(epoch=sa.func.greatest(sa.literal_column(MICROS), _LAST + 1))
    .on_conflict_do_nothing(index_elements=["epoch"])
    .returning(actions.c.epoch)
)
_INSERT_ALONE = (  # SQLite has one writer at a time
    sa.insert(actions)
    .values(epoch=sa.func.max(sa.literal_column(MICROS_ON_SQLITE), _LAST + 1))
    .returning(actions.c.epoch)
)


def add_action(connection: sa.Connection, action: dict[str, Any]) -> int:
    """Insert a line into `actions`. Returns its number."""
    insert = _INSERT if connection.dialect.name == "postgresql" else _INSERT_ALONE
    while True:
        number = connection.execute(insert, action).scalar_one_or_none()
        if number is not None:
            return int(number)
