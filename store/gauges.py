"""What a worker's gauges show of the store: open actions, the oldest of them, and the last sweep."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from store.dbtime import read_database_time
from store.healing import read_reports
from store.schema import IS_OPEN, actions
from store.transaction import SqlStore, transaction

_SELECT_OPEN = sa.select(sa.func.count(), sa.func.min(actions.c.began_at)).where(IS_OPEN)


class StoreGauges(NamedTuple):
    """Open actions, and what the last sweep found; None if there was no sweep yet."""

    open_actions: int
    oldest_seconds: float
    drifted: int | None
    sweep_seconds: float | None


def _read_gauges(connection: sa.Connection) -> StoreGauges:
    now = read_database_time(connection)
    number, oldest = connection.execute(_SELECT_OPEN).one()
    age = max(0.0, (now - oldest).total_seconds()) if oldest else 0.0
    if not (reports := read_reports(connection, 1)):
        return StoreGauges(number, age, None, None)
    last = reports[0]
    return StoreGauges(number, age, sum(last.counts.values()), max(0.0, (now - last.at).total_seconds()))


class SqlGauges(SqlStore):
    """The reads behind a worker's gauges."""

    read_gauges = transaction(_read_gauges)
