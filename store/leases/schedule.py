"""Queries of a pool's clock (due events) and of host hand-over (what a reservation should hold)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from domain.errors import Superseded
from domain.leases.capacity import Size
from domain.leases.dates import stamp
from domain.leases.messages import DueEvent, DueList, DueQuery, HandOver, HandOverGoal, Holding
from domain.leases.tables import BEFORE_END, END, START, LeaseStatus
from store.leases.capacity import HELD, JOINING, LEAVING, RETURNING, lock, one_at_a_time, size_of
from store.leases.tables import BookingRow, allocations, bookings, timers
from store.queries import below
from store.schema import actions, objects
from store.transaction import Store, transaction

PAGE = 500
OVERDUE_LISTED = 1_000
_FIRST = {END: 0, BEFORE_END: 1, START: 2}  # order at one moment: an end makes room for a start

_MINE = bookings.c.reservation.in_(sa.bindparam("these", expanding=True))
_CHANGED = sa.update(bookings).where(_MINE).values(version=bookings.c.version + 1)
_CLOSED = _CHANGED.values(closing=True)
_THEIRS = allocations.c.reservation.in_(sa.bindparam("these", expanding=True))
_STAYS = sa.update(allocations).where(_THEIRS, allocations.c.phase == LEAVING).values(phase=HELD)
_GOES_BACK = sa.update(allocations).where(_THEIRS, allocations.c.phase == JOINING).values(phase=RETURNING)
_IS_BACK = sa.delete(allocations).where(
    allocations.c.reservation == sa.bindparam("mine"), allocations.c.phase == RETURNING
)
_HELD = (
    sa.select(allocations.c.reservation, allocations.c.host, allocations.c.units, allocations.c.phase)
    .where(_THEIRS, allocations.c.phase != LEAVING)
    .order_by(allocations.c.host, allocations.c.id)
)

_MADE = sa.select(bookings.c.reservation, objects.c.info).join(objects, objects.c.path == bookings.c.lease).where(_MINE)
_OPEN = (
    sa.select(actions.c.epoch)
    .where(actions.c.epoch == sa.bindparam("number"), actions.c.path == sa.bindparam("at_path"))
    .where(actions.c.ended_at.is_(None))
    .with_for_update(read=True)
)

_RANK = sa.case(_FIRST, value=timers.c.name)  # order of events due at one moment
_OWN = timers.alias("own")
_EARLIER = (  # the events of one lease come one at a time
    sa.exists()
    .where(_OWN.c.lease == timers.c.lease)
    .where((_OWN.c.name == START) | ((_OWN.c.name == BEFORE_END) & (timers.c.name == END)))
)
_COME = (
    sa.select(timers.c.lease, timers.c.name, timers.c.due, _RANK.label("rank"), timers.c.event)
    .where(
        timers.c.pool == sa.bindparam("of_pool"),
        timers.c.due <= sa.bindparam("now", type_=timers.c.due.type),
        (timers.c.name == START) | ~_EARLIER,
    )
    .order_by(timers.c.due, _RANK, timers.c.event)
    .limit(PAGE)
)
_GO_ON = _COME.where(
    sa.tuple_(timers.c.due, _RANK, timers.c.event)
    > sa.tuple_(
        sa.bindparam("last_due", type_=timers.c.due.type),
        sa.bindparam("last_rank", type_=sa.Integer),
        sa.bindparam("last_event", type_=timers.c.event.type),
    )
)
_LATER = (
    sa.select(timers.c.due)
    .where(timers.c.pool == sa.bindparam("of_pool"), timers.c.due > sa.bindparam("now", type_=timers.c.due.type))
    .order_by(timers.c.due)
    .limit(1)
)
# Skips from pool to pool; GROUP BY would read every timer.
_NEXT_POOL = (
    sa.select(timers.c.pool, timers.c.due)
    .where(timers.c.pool > sa.bindparam("after"))
    .order_by(timers.c.pool, timers.c.due)
    .limit(1)
)
_LATE = (
    sa.select(timers.c.lease, timers.c.name, timers.c.due)
    .where(timers.c.due < sa.bindparam("before", type_=timers.c.due.type))
    .order_by(timers.c.due)
    .limit(OVERDUE_LISTED)
)


def due(connection: sa.Connection, query: DueQuery) -> DueList:
    """Returns due events in the order in which they must run; the events of one lease come one at a time.

    A start waits until the previous holders of its hosts have given them back, unless their lease is under ERROR.
    Waiting events do not block later ones: it reads on, page by page.
    """
    one_at_a_time(connection, query.pool)  # waits for transactions that may add an earlier event
    asked, busy = {"of_pool": query.pool, "now": query.at}, set(query.busy)
    ready: list[DueEvent] = []
    waiting = 0
    page = connection.execute(_COME, asked).all()
    while page:
        come = [DueEvent(lease=row.lease, name=row.name, due=row.due) for row in page if row.lease not in busy]
        held_up = _held_up(connection, [each.lease for each in come if each.name == START])
        ready += [each for each in come if each.lease not in held_up]
        waiting += len(held_up)
        if len(page) < PAGE or len(ready) >= PAGE:
            break
        last = page[-1]
        page = connection.execute(
            _GO_ON, asked | {"last_due": last.due, "last_rank": last.rank, "last_event": last.event}
        ).all()
    return DueList(due=ready, waiting=waiting, next=connection.execute(_LATER, asked).scalar_one_or_none())


def pools(connection: sa.Connection) -> dict[str, datetime]:
    """Returns pools with events to come, each with the time of its first event."""
    found: dict[str, datetime] = {}
    last = ""
    while row := connection.execute(_NEXT_POOL, {"after": last}).one_or_none():
        last, found[row.pool] = row.pool, row.due
    return found


def overdue(connection: sa.Connection, prefix: str, before: datetime) -> dict[str, str]:
    """Returns events due before a time, by lease. A start that waits for another lease's end is not overdue."""
    if prefix:
        rows = list(connection.execute(_LATE.where(below(timers.c.lease, prefix)), {"before": before}))
    else:  # pool by pool, as the index is ordered
        late = {pool for pool, first in pools(connection).items() if first < before}
        each = (connection.execute(_LATE.where(timers.c.pool == pool), {"before": before}) for pool in sorted(late))
        rows = sorted((row for some in each for row in some), key=lambda row: row.due)[:OVERDUE_LISTED]
    held_up = _held_up(connection, [row.lease for row in rows if row.name == START])
    return {row.lease: f"{stamp(row.due)} ({row.name})" for row in reversed(rows) if row.lease not in held_up}


def still_due(connection: sa.Connection, events: Sequence[DueEvent]) -> list[DueEvent]:
    """Returns those events whose timers still exist with the same time."""
    query = sa.select(timers.c.lease, timers.c.name, timers.c.due)
    leases = [each.lease for each in events]
    there = {tuple(row) for row in connection.execute(query.where(timers.c.lease.in_(leases)))}
    return [each for each in events if (each.lease, each.name, each.due) in there]


def _ordered(connection: sa.Connection, order: HandOver) -> list[Holding]:
    """Returns what to hand over for an action; raises Superseded if it has ended. It cannot end meanwhile."""
    asked = {"number": order.epoch, "at_path": order.path}
    if connection.execute(_OPEN, asked).first() is None:
        raise Superseded(f"the action {order.epoch} on {order.path} is over", final=True)
    return holdings(connection, order.reservations, order.want)


def holdings(connection: sa.Connection, reservations: Sequence[str], want: HandOverGoal) -> list[Holding]:
    """Returns what each reservation should hold now. Closes the bookings first if they are to hold nothing.

    The bookings stay locked, so that a host failure is ordered before or after this read.
    """
    these = {"these": list(reservations)}
    rows = lock(connection, reservations)
    if want is HandOverGoal.BEFORE:  # JOINING hosts are not handed over from now on
        connection.execute(_STAYS, these)
        connection.execute(_GOES_BACK, these)
    if want is not HandOverGoal.ALL:
        connection.execute(_CLOSED if want is HandOverGoal.NOTHING else _CHANGED, these)
        rows = lock(connection, reservations)
    generations = {path: info["generation"] for path, info in connection.execute(_MADE, these)}
    places: defaultdict[str, dict[str, int]] = defaultdict(dict)
    returning = set[str]()
    for row in connection.execute(_HELD, these):
        if row.phase == RETURNING:
            returning.add(row.reservation)
            continue
        there = places[row.reservation]
        there[row.host] = there.get(row.host, 0) + row.units
    return [
        _holding(row, generations.get(path, 0), {} if row.closing else places[path], path in returning)
        for path, row in rows.items()
    ]


def returned(connection: sa.Connection, holding: Holding) -> None:
    """Frees the RETURNING hosts of a reservation, unless its booking has changed since the order."""
    row = lock(connection, [holding.reservation]).get(holding.reservation)
    if row and (row.token, row.version) == (holding.token, holding.version):
        connection.execute(_IS_BACK, {"mine": holding.reservation})


def _holding(row: BookingRow, generation: int, hosts: dict[str, int], returning: bool) -> Holding:
    size: Size = size_of(row)
    named = (row.token, generation, row.reservation, row.version)
    return Holding(*named, hosts, row.whole, size, returning)


def _held_up(connection: sa.Connection, leases: list[str]) -> set[str]:
    """Returns leases whose hosts are still held by a lease whose time is over."""
    if not leases:
        return set()
    ours, theirs = allocations.alias("ours"), allocations.alias("theirs")
    query = (
        sa.select(ours.c.lease)
        .join(theirs, (theirs.c.host == ours.c.host) & (theirs.c.ends <= ours.c.starts))
        .join(objects, objects.c.path == theirs.c.lease)
        .where(ours.c.lease.in_(leases), theirs.c.lease != ours.c.lease, objects.c.status != LeaseStatus.ERROR.value)
        .distinct()
    )
    return set(connection.execute(query).scalars())


class SqlLeases(Store):
    """The leases family's store: `domain.leases.messages.Schedule` and `Holdings` on SQLite or PostgreSQL."""

    due = transaction(due)
    still_due = transaction(still_due)
    holdings = transaction(_ordered)
    pools = transaction(pools)
    overdue = transaction(overdue)
    returned = transaction(returned)
