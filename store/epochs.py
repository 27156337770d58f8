"""Epochs: the numbers of actions. They increase over all objects and are never reused.

An epoch is at least the database's clock in microseconds. A store restored from a backup, or a promoted replica, has
lost its last actions but not the time, so it does not reuse their epochs or the tokens made from them. If the clock was
set back, epochs count up from the highest one on record.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from store.dbtime import MICROS_SQL, MICROS_SQL_ON_SQLITE
from store.schema import actions

_LAST_EPOCH = sa.select(sa.func.coalesce(sa.func.max(actions.c.epoch), 0)).scalar_subquery()
# Two concurrent begins can compute the same epoch. The later insert waits for the other transaction, writes nothing,
# and is tried again with the next epoch.
_INSERT_ON_POSTGRES = (
    postgresql.insert(actions)
    .values(epoch=sa.func.greatest(sa.literal_column(MICROS_SQL), _LAST_EPOCH + 1))
    .on_conflict_do_nothing(index_elements=["epoch"])
    .returning(actions.c.epoch)
)
_INSERT_ON_SQLITE = (  # SQLite has one writer at a time
    sa.insert(actions)
    .values(epoch=sa.func.max(sa.literal_column(MICROS_SQL_ON_SQLITE), _LAST_EPOCH + 1))
    .returning(actions.c.epoch)
)


def insert_action(connection: sa.Connection, action: dict[str, Any]) -> int:
    """Inserts a row into `actions` and returns its epoch."""
    insert = _INSERT_ON_POSTGRES if connection.dialect.name == "postgresql" else _INSERT_ON_SQLITE
    while True:
        number = connection.execute(insert, action).scalar_one_or_none()
        if number is not None:
            return int(number)
