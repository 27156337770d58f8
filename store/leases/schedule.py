"""What is due in a pool, and what the reservations of a lease should hold: what the clock and the hands ask for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import sqlalchemy as sa

from domain.leases.capacity import Size
from domain.leases.tables import BEFORE_END, END, EVENTS, START, Lease
from domain.leases.views import Due, DueList, DueQuery, Holding, Want
from store.engine import Database
from store.leases.capacity import JOINING, LEAVING, one_at_a_time, size_of
from store.leases.tables import allocations, bookings, timers
from store.schema import objects

PAGE = 500
_FIRST = {END: 0, BEFORE_END: 1, START: 2}  # at one moment: what ends makes room for what starts

_MINE = bookings.c.reservation.in_(sa.bindparam("these", expanding=True))
_CHANGED = sa.update(bookings).where(_MINE).values(version=bookings.c.version + 1)
_CLOSED = _CHANGED.values(closing=True)
_BOOKED = sa.select(bookings).where(_MINE).order_by(bookings.c.reservation)
_HELD = (
    sa.select(allocations.c.reservation, allocations.c.host, allocations.c.units)
    .where(
        allocations.c.reservation.in_(sa.bindparam("these", expanding=True)), allocations.c.phase != sa.bindparam("but")
    )
    .order_by(allocations.c.host, allocations.c.id)
)


class SqlLeases:
    """`domain.leases.views.Schedule` and `Holdings` on SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def due(self, query: DueQuery) -> DueList:
        return await self.database.run(partial(due, query=query))

    async def still_due(self, events: Sequence[Due]) -> list[Due]:
        return await self.database.run(partial(still_due, events=events))

    async def holdings(self, reservations: Sequence[str], want: Want = Want.ALL) -> list[Holding]:
        return await self.database.run(partial(holdings, reservations=reservations, want=want))


def due(connection: sa.Connection, query: DueQuery) -> DueList:
    """Events whose time has come, in the order in which they must run; a lease's own come one after the other.

    A start waits until whoever had its hosts before has given them back; a lease under ERROR is not waited for.
    """
    one_at_a_time(connection, query.pool)  # so that nobody is about to commit an earlier event unseen
    mine = timers.c.pool == query.pool
    come = sa.select(timers.c.lease, timers.c.name, timers.c.due).where(mine, timers.c.due <= query.at)
    rank = sa.case(_FIRST, value=timers.c.name)
    rows = connection.execute(come.order_by(timers.c.due, rank, timers.c.event).limit(PAGE + len(query.busy))).all()
    later = sa.select(timers.c.due).where(mine, timers.c.due > query.at).order_by(timers.c.due).limit(1)
    first: dict[str, Due] = {}
    for lease, name, moment in rows:
        found = Due(lease=lease, name=name, due=moment)
        kept = first.get(lease)
        if kept is None or (moment == kept.due and EVENTS.index(name) < EVENTS.index(kept.name)):
            first[lease] = found
    held_up = _held_up(connection, [each.lease for each in first.values() if each.name == START])
    ready = [each for each in first.values() if each.lease not in held_up and each.lease not in query.busy]
    waiting = len([row for row in rows if row[0] not in query.busy]) - len(ready)
    return DueList(due=ready, waiting=waiting, next=connection.execute(later).scalar_one_or_none())


def still_due(connection: sa.Connection, events: Sequence[Due]) -> list[Due]:
    """Those of the events whose timers are still there, and set to the same moment."""
    query = sa.select(timers.c.lease, timers.c.name, timers.c.due)
    leases = [each.lease for each in events]
    there = {tuple(row) for row in connection.execute(query.where(timers.c.lease.in_(leases)))}
    return [each for each in events if (each.lease, each.name, each.due) in there]


def holdings(connection: sa.Connection, reservations: Sequence[str], want: Want) -> list[Holding]:
    """What these should hold now. Those that are to hold nothing are closed first, whoever may come with more."""
    these = {"these": list(reservations)}
    if want is not Want.ALL:
        connection.execute(_CLOSED if want is Want.NOTHING else _CHANGED, these)
    rows = connection.execute(_BOOKED, these).mappings().all()
    places: defaultdict[str, dict[str, int]] = defaultdict(dict)
    without = JOINING if want is Want.BEFORE else LEAVING
    for row in connection.execute(_HELD, {**these, "but": without}).mappings():
        there = places[row["reservation"]]
        there[row["host"]] = there.get(row["host"], 0) + row["units"]
    return [_holding(row, {} if row["closing"] else places[row["reservation"]]) for row in rows]


def _holding(row: sa.RowMapping, hosts: dict[str, int]) -> Holding:
    size: Size = size_of(row)
    return Holding(row["token"], row["reservation"], row["version"], hosts, row["whole"], size)


def _held_up(connection: sa.Connection, leases: list[str]) -> set[str]:
    """Leases whose hosts are still in the hands of somebody whose time is over."""
    if not leases:
        return set()
    ours, theirs = allocations.alias("ours"), allocations.alias("theirs")
    query = (
        sa.select(ours.c.lease)
        .join(theirs, (theirs.c.host == ours.c.host) & (theirs.c.ends <= ours.c.starts))
        .join(objects, objects.c.path == theirs.c.lease)
        .where(ours.c.lease.in_(leases), theirs.c.lease != ours.c.lease, objects.c.status != Lease.ERROR.value)
        .distinct()
    )
    return set(connection.execute(query).scalars())
