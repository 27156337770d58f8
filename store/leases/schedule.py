"""Queries of a pool's clock (due events) and of host hand-over (what a reservation should hold)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from domain.leases.dates import format_date
from domain.leases.messages import DesiredHolding, DueEvent, DueEvents, DueEventsQuery, HandOverOrder, HoldingsToReach
from domain.leases.tables import BEFORE_END, END, START, LeaseStatus
from store.leases.capacity import (
    HELD,
    JOINING,
    LEAVING,
    RETURNING,
    lock_bookings,
    serialize_pool_allocations,
    size_from_row,
)
from store.leases.tables import allocations, bookings, timers
from store.openaction import lock_open_action
from store.queries import at_or_below_condition
from store.schema import objects
from store.transaction import SqlStore, transaction

PAGE_SIZE = 500
OVERDUE_LISTED = 1_000
_RANK_OF_EVENT = {END: 0, BEFORE_END: 1, START: 2}  # order at one moment: an end makes room for a start

_IS_BOOKING_OF_THESE = bookings.c.reservation.in_(sa.bindparam("these", expanding=True))
_RAISE_VERSIONS = sa.update(bookings).where(_IS_BOOKING_OF_THESE).values(version=bookings.c.version + 1)
_CLOSE_BOOKINGS = _RAISE_VERSIONS.values(closing=True)
_IS_ALLOCATION_OF_THESE = allocations.c.reservation.in_(sa.bindparam("these", expanding=True))
_KEEP_LEAVING = sa.update(allocations).where(_IS_ALLOCATION_OF_THESE, allocations.c.phase == LEAVING).values(phase=HELD)
_RETURN_JOINING = (
    sa.update(allocations).where(_IS_ALLOCATION_OF_THESE, allocations.c.phase == JOINING).values(phase=RETURNING)
)
_DELETE_RETURNING = sa.delete(allocations).where(
    allocations.c.reservation == sa.bindparam("mine"), allocations.c.phase == RETURNING
)
_SELECT_HELD = (
    sa.select(allocations.c.reservation, allocations.c.host, allocations.c.units, allocations.c.phase)
    .where(_IS_ALLOCATION_OF_THESE, allocations.c.phase != LEAVING)
    .order_by(allocations.c.host, allocations.c.id)
)

_SELECT_GENERATIONS = (
    sa.select(bookings.c.reservation, objects.c.info)
    .join(objects, objects.c.path == bookings.c.lease)
    .where(_IS_BOOKING_OF_THESE)
)

_EVENT_RANK = sa.case(_RANK_OF_EVENT, value=timers.c.name)  # order of events due at one moment
_OWN_TIMERS = timers.alias("own")
_HAS_EARLIER_EVENT = (  # the events of one lease come one at a time
    sa.exists()
    .where(_OWN_TIMERS.c.lease == timers.c.lease)
    .where((_OWN_TIMERS.c.name == START) | ((_OWN_TIMERS.c.name == BEFORE_END) & (timers.c.name == END)))
)
_SELECT_DUE_EVENTS = (
    sa.select(timers.c.lease, timers.c.name, timers.c.due, _EVENT_RANK.label("rank"), timers.c.event)
    .where(
        timers.c.pool == sa.bindparam("of_pool"),
        timers.c.due <= sa.bindparam("now", type_=timers.c.due.type),
        (timers.c.name == START) | ~_HAS_EARLIER_EVENT,
    )
    .order_by(timers.c.due, _EVENT_RANK, timers.c.event)
    .limit(PAGE_SIZE)
)
_SELECT_NEXT_DUE_EVENTS = _SELECT_DUE_EVENTS.where(
    sa.tuple_(timers.c.due, _EVENT_RANK, timers.c.event)
    > sa.tuple_(
        sa.bindparam("last_due", type_=timers.c.due.type),
        sa.bindparam("last_rank", type_=sa.Integer),
        sa.bindparam("last_event", type_=timers.c.event.type),
    )
)
_SELECT_NEXT_DUE_DATE = (
    sa.select(timers.c.due)
    .where(timers.c.pool == sa.bindparam("of_pool"), timers.c.due > sa.bindparam("now", type_=timers.c.due.type))
    .order_by(timers.c.due)
    .limit(1)
)
_SELECT_PRINCIPALS = sa.select(objects.c.path, objects.c.principal).where(
    objects.c.path.in_(sa.bindparam("leases", expanding=True))
)
# Skips from pool to pool; GROUP BY would read every timer.
_SELECT_NEXT_POOL = (
    sa.select(timers.c.pool, timers.c.due)
    .where(timers.c.pool > sa.bindparam("after"))
    .order_by(timers.c.pool, timers.c.due)
    .limit(1)
)
_SELECT_OVERDUE_EVENTS = (
    sa.select(timers.c.lease, timers.c.name, timers.c.due)
    .where(timers.c.due < sa.bindparam("before", type_=timers.c.due.type))
    .order_by(timers.c.due)
    .limit(OVERDUE_LISTED)
)


def list_due_events(connection: sa.Connection, query: DueEventsQuery) -> DueEvents:
    """Returns due events in the order in which they must run; the events of one lease come one at a time.

    A start waits until the previous holders of its hosts have given them back, unless their lease is under ERROR.
    Waiting events do not block later ones: it reads on, page by page.
    """
    serialize_pool_allocations(connection, query.pool)  # waits for transactions that may add an earlier event
    asked, busy = {"of_pool": query.pool, "now": query.at}, set(query.busy)
    ready: list[DueEvent] = []
    waiting = 0
    page = connection.execute(_SELECT_DUE_EVENTS, asked).all()
    while page:
        come = [DueEvent(lease=row.lease, name=row.name, due=row.due) for row in page if row.lease not in busy]
        held_up = _find_leases_waiting(connection, [event.lease for event in come if event.name == START])
        ready += [event for event in come if event.lease not in held_up]
        waiting += len(held_up)
        if len(page) < PAGE_SIZE or len(ready) >= PAGE_SIZE:
            break
        last = page[-1]
        page = connection.execute(
            _SELECT_NEXT_DUE_EVENTS, asked | {"last_due": last.due, "last_rank": last.rank, "last_event": last.event}
        ).all()
    later = connection.execute(_SELECT_NEXT_DUE_DATE, asked).scalar_one_or_none()
    return DueEvents(due=_with_principals(connection, ready), waiting=waiting, next=later)


def _with_principals(connection: sa.Connection, events: list[DueEvent]) -> list[DueEvent]:
    """Fills in who made the leases of these events: the clock fires them on their behalf."""
    if not events:
        return []
    rows = connection.execute(_SELECT_PRINCIPALS, {"leases": [event.lease for event in events]})
    made_by = {path: principal["name"] for path, principal in rows if principal}
    return [event.model_copy(update={"principal": made_by.get(event.lease, "")}) for event in events]


def list_pools_with_events(connection: sa.Connection) -> dict[str, datetime]:
    """Returns pools with events to come, each with the time of its first event."""
    found: dict[str, datetime] = {}
    last = ""
    while row := connection.execute(_SELECT_NEXT_POOL, {"after": last}).one_or_none():
        last, found[row.pool] = row.pool, row.due
    return found


def list_overdue_events(connection: sa.Connection, prefix: str, before: datetime) -> dict[str, str]:
    """Returns events due before a time, by lease. A start that waits for another lease's end is not overdue."""
    if prefix:
        rows = list(
            connection.execute(
                _SELECT_OVERDUE_EVENTS.where(at_or_below_condition(timers.c.lease, prefix)), {"before": before}
            )
        )
    else:  # pool by pool, as the index is ordered
        late = {pool for pool, first in list_pools_with_events(connection).items() if first < before}
        each = (
            connection.execute(_SELECT_OVERDUE_EVENTS.where(timers.c.pool == pool), {"before": before})
            for pool in sorted(late)
        )
        rows = sorted((row for some in each for row in some), key=lambda row: row.due)[:OVERDUE_LISTED]
    held_up = _find_leases_waiting(connection, [row.lease for row in rows if row.name == START])
    return {row.lease: f"{format_date(row.due)} ({row.name})" for row in reversed(rows) if row.lease not in held_up}


def filter_due_events(connection: sa.Connection, events: Sequence[DueEvent]) -> list[DueEvent]:
    """Returns those events whose timers still exist with the same time."""
    query = sa.select(timers.c.lease, timers.c.name, timers.c.due)
    leases = [event.lease for event in events]
    there = {tuple(row) for row in connection.execute(query.where(timers.c.lease.in_(leases)))}
    return [event for event in events if (event.lease, event.name, event.due) in there]


def _read_holdings_of_order(connection: sa.Connection, order: HandOverOrder) -> list[DesiredHolding]:
    """Returns what to hand over for an action; raises Superseded if it has ended. It cannot end meanwhile."""
    lock_open_action(connection, order.path, order.epoch)
    return read_holdings(connection, order.reservations, order.want)


def read_holdings(
    connection: sa.Connection, reservations: Sequence[str], want: HoldingsToReach
) -> list[DesiredHolding]:
    """Returns what each reservation should hold now. Closes the bookings first if they are to hold nothing.

    The bookings stay locked, so that a host failure is ordered before or after this read.
    """
    these = {"these": list(reservations)}
    rows = lock_bookings(connection, reservations)
    if want is HoldingsToReach.BEFORE:  # JOINING hosts are not handed over from now on
        connection.execute(_KEEP_LEAVING, these)
        connection.execute(_RETURN_JOINING, these)
    if want is not HoldingsToReach.ALL:
        connection.execute(_CLOSE_BOOKINGS if want is HoldingsToReach.NOTHING else _RAISE_VERSIONS, these)
        rows = lock_bookings(connection, reservations)
    generations = {path: info["generation"] for path, info in connection.execute(_SELECT_GENERATIONS, these)}
    places: defaultdict[str, dict[str, int]] = defaultdict(dict)
    returning = set[str]()
    for row in connection.execute(_SELECT_HELD, these):
        if row.phase == RETURNING:
            returning.add(row.reservation)
            continue
        there = places[row.reservation]
        there[row.host] = there.get(row.host, 0) + row.units
    return [
        DesiredHolding(
            token=row.token,
            generation=generations.get(path, 0),
            reservation=path,
            version=row.version,
            hosts={} if row.closing else places[path],
            whole=row.whole,
            size=size_from_row(row),
            returning=path in returning,
        )
        for path, row in rows.items()
    ]


def record_returned_hosts(connection: sa.Connection, holding: DesiredHolding) -> None:
    """Frees the RETURNING hosts of a reservation, unless its booking has changed since the order."""
    row = lock_bookings(connection, [holding.reservation]).get(holding.reservation)
    if row and (row.token, row.version) == (holding.token, holding.version):
        connection.execute(_DELETE_RETURNING, {"mine": holding.reservation})


def _find_leases_waiting(connection: sa.Connection, leases: list[str]) -> set[str]:
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


class SqlLeaseSchedule(SqlStore):
    """The leases family's store: `domain.leases.messages.EventSchedule` and `HoldingsStore` on SQLite or PostgreSQL."""

    list_due_events = transaction(list_due_events)
    filter_due_events = transaction(filter_due_events)
    read_holdings = transaction(_read_holdings_of_order)
    list_pools_with_events = transaction(list_pools_with_events)
    list_overdue_events = transaction(list_overdue_events)
    record_returned_hosts = transaction(record_returned_hosts)
