"""Read-only views of leases and of a pool's calendar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import starmap

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.leases.dates import parse_date
from domain.leases.messages import (
    BookingKey,
    CalendarQuery,
    CalendarView,
    EventView,
    HostBooking,
    HostOccupancy,
    LeaseView,
    Occupancy,
    PrivatePropertiesView,
    ReservationView,
)
from domain.leases.tables import EVENTS, ReservationStatus
from domain.paths import name_of
from store.leases.capacity import HELD, LEAVING, RETURNING
from store.leases.parts import next_due_date
from store.leases.tables import AllocationRow, BookingRow, allocations, bookings, hosts, private_properties
from store.queries import at_or_below_condition
from store.schema import ObjectRow, objects
from store.transaction import SqlStore, transaction

WEEK = timedelta(days=7)


def _read_lease(connection: sa.Connection, path: str) -> LeaseView:
    found = _read_leases_where(connection, objects.c.path == path, limit=1)
    if not found:
        raise Refused(Category.NOT_FOUND, f"there is no such lease: {path}", "starter lease list")
    return found[0]


def _read_leases(connection: sa.Connection, prefix: str, after: str, limit: int) -> list[LeaseView]:
    which = objects.c.path > after
    if prefix:  # bounds on both sides: with `below` alone, all leases are read
        first = which if after >= prefix else objects.c.path >= prefix
        which = first & (objects.c.path < f"{prefix};") & at_or_below_condition(objects.c.path, prefix)
    return _read_leases_where(connection, which, limit)


def _read_leases_where(connection: sa.Connection, which: sa.ColumnElement[bool], limit: int) -> list[LeaseView]:
    query = sa.select(objects).where(objects.c.kind == "lease", which).order_by(objects.c.path).limit(limit)
    leases = [ObjectRow(*row) for row in connection.execute(query)]
    paths = [row.path for row in leases]
    parts: defaultdict[str, list[ObjectRow]] = defaultdict(list)
    for part in [ObjectRow(*row) for row in connection.execute(sa.select(objects).where(objects.c.parent.in_(paths)))]:
        parts[part.parent].append(part)
    booked = [BookingRow(*row) for row in connection.execute(sa.select(bookings).where(bookings.c.lease.in_(paths)))]
    by_path = {row.reservation: row for row in booked}
    placed: defaultdict[str, list[AllocationRow]] = defaultdict(list)
    for row in starmap(AllocationRow, connection.execute(sa.select(allocations).where(allocations.c.lease.in_(paths)))):
        placed[row.reservation].append(row)
    return [_lease_view(lease, parts[lease.path], by_path, placed) for lease in leases]


def _occupancies_by_host(rows: Iterable[AllocationRow]) -> dict[str, list[Occupancy]]:
    found: defaultdict[str, list[Occupancy]] = defaultdict(list)
    for row in rows:
        found[row.host].append(
            Occupancy(
                lease=row.lease,
                start=row.starts,
                end=row.ends,
                units=row.units,
                whole=row.whole,
                reservation=row.reservation,
            )
        )
    return found


def _lease_view(
    lease: ObjectRow,
    parts: Sequence[ObjectRow],
    by_path: Mapping[str, BookingRow],
    placed: Mapping[str, list[AllocationRow]],
) -> LeaseView:
    ordered = sorted(
        (row for row in parts if row.kind == "reservation"), key=lambda row: int(name_of(row.path).removeprefix("r"))
    )
    reservations = [_reservation_view(row, by_path.get(row.path), placed.get(row.path, [])) for row in ordered]
    events = {name_of(row.path): row for row in parts if row.kind == "event"}
    return LeaseView(
        path=lease.path,
        name=lease.spec["name"],
        status=lease.status,
        pool=lease.spec["pool"],
        start=datetime.fromisoformat(lease.spec["start"]),
        end=datetime.fromisoformat(lease.spec["end"]),
        degraded=any(reservation.missing_resources or reservation.resources_changed for reservation in reservations),
        reservations=reservations,
        events=[_event_view(name, events[name]) for name in EVENTS if name in events],
        error=lease.error,
        requested_by=lease.principal_name,
        created_at=lease.created_at,
        changed_at=lease.changed_at,
    )


def _reservation_view(row: ObjectRow, booking: BookingRow | None, placed: Sequence[AllocationRow]) -> ReservationView:
    """Builds the view of a reservation. Its flags are computed from the allocations, never stored."""
    spec = row.spec
    units: dict[str, int] = {}
    for each in (row for row in placed if row.phase in (HELD, LEAVING)):
        units[name_of(each.host)] = units.get(name_of(each.host), 0) + each.units
    began = {name_of(host) for host in (booking.began_with or ())} if booking else set()
    active = row.status == ReservationStatus.ACTIVE
    # During an update a booking covers what is and what will be.
    promised = sum(row.units for row in placed if row.phase != RETURNING)
    return ReservationView(
        id=name_of(row.path),
        status=row.status,
        resource_type=spec["resource_type"],
        min=spec.get("min", 1),
        max=spec.get("max") or spec.get("min", 1),
        hosts=dict(sorted(units.items())),
        mci=spec.get("mci", ""),
        missing_resources=bool(booking and promised < booking.units),
        resources_changed=active and bool(units.keys() - began),
        error=row.error,
        spec=spec,
        created_at=row.created_at,
        changed_at=row.changed_at,
    )


def _event_view(name: str, row: ObjectRow) -> EventView:
    return EventView(
        name=name,
        status=row.status,
        due=datetime.fromisoformat(row.spec["due"]),
        error=row.error,
        created_at=row.created_at,
        changed_at=row.changed_at,
    )


def _read_calendar(connection: sa.Connection, query: CalendarQuery, now: datetime) -> CalendarView:
    start = parse_date(query.start, now, "start") if query.start else _start_of_calendar(connection, query.pool, now)
    end = parse_date(query.end, now, "end") if query.end else start + WEEK
    if end <= start:
        raise Refused(Category.INVALID, "the calendar ends before it starts", "write --end after --start")
    known = sa.select(hosts.c.host, objects.c.status).join(objects, objects.c.path == hosts.c.host)
    lines = connection.execute(known.where(hosts.c.pool == query.pool).order_by(hosts.c.host)).all()
    shown = lines[: query.limit]
    within = sa.select(allocations).where(
        allocations.c.host.in_([host for host, _ in shown]), allocations.c.starts < end, allocations.c.ends > start
    )
    rows = connection.execute(within.order_by(allocations.c.starts, allocations.c.lease))
    taken = _occupancies_by_host([AllocationRow(*row) for row in rows])
    return CalendarView(
        pool=query.pool,
        start=start,
        end=end,
        hosts=[
            HostOccupancy(host=name_of(host), status=status, stretches=taken.get(host, [])) for host, status in shown
        ],
        left_out=len(lines) - len(shown),
    )


def _read_private_properties(connection: sa.Connection, pool: str) -> PrivatePropertiesView:
    query = sa.select(private_properties.c.name).where(private_properties.c.pool == pool)
    return PrivatePropertiesView(names=sorted(connection.execute(query).scalars()))


def _list_bookings(connection: sa.Connection, prefix: str, after: BookingKey, limit: int) -> list[HostBooking]:
    """Returns the next periods that leases at or below a path have booked whole hosts for."""
    key = (allocations.c.host, allocations.c.ends, allocations.c.id)
    # The bound on the host alone: by it the index is entered.
    which = [allocations.c.whole, allocations.c.host >= after[0]]
    which += [at_or_below_condition(allocations.c.lease, prefix)] if prefix else []
    last = sa.tuple_(*(sa.literal(value, column.type) for value, column in zip(after, key, strict=True)))
    rows = connection.execute(sa.select(allocations).where(*which, sa.tuple_(*key) > last).order_by(*key).limit(limit))
    return [
        HostBooking(id=row.id, host=row.host, lease=row.lease, start=row.starts, end=row.ends)
        for row in starmap(AllocationRow, rows)
    ]


def _start_of_calendar(connection: sa.Connection, pool: str, now: datetime) -> datetime:
    """Returns the calendar's first moment: now, or the next event if that is more than a week away."""
    soon = next_due_date(connection, pool)
    return max(now, soon) if soon and soon > now + WEEK else now


class SqlLeaseViews(SqlStore):
    """The reads of `starter lease show`, `list`, `events` and `calendar`."""

    read_lease = transaction(_read_lease)
    read_leases = transaction(_read_leases)
    list_bookings = transaction(_list_bookings)
    read_calendar = transaction(_read_calendar)
    read_private_properties = transaction(_read_private_properties)
