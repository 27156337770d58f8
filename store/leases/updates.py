"""An update of a lease: begin allocates what it needs; finish makes it the lease's own, or frees it.

Until finish, readers see the lease unchanged. Its bookings cover both the old and the new dates and sizes, so either
can be the result without another search; its timers are set to the earlier of two dates, so the clock wakes in time for
either.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.leases.dates import format_date
from domain.leases.messages import BookedUnits, BookingChange, LeaseGrantDetails
from domain.leases.specs import LeaseChange, LeaseTerm, Resize
from domain.leases.tables import BEFORE_END, END, EVENTS, EventStatus, LeaseStatus
from domain.model import Move
from domain.paths import name_of, short_path
from store.leases import booking, capacity, parts
from store.leases.capacity import HELD, JOINING, LEAVING, RETURNING
from store.leases.parts import LeaseParts
from store.leases.tables import AllocationRow, BookingRow, allocations, bookings, timers
from store.schema import ObjectRow


def allocate_lease_update(
    connection: sa.Connection, lease: str, now: LeaseParts, change: LeaseChange, dates: LeaseTerm, started: bool
) -> LeaseGrantDetails:
    """Allocates what the update needs. Returns the details that `finish_lease_update` and the workflow need."""
    specs = {name_of(row.path): row.spec for row in now.reservations}
    sizes = _resizes_by_reservation(change, specs)
    plans: dict[str, BookingChange] = {}
    hand_over = list_returning_reservations(connection, lease)
    for row in capacity.lock_bookings_of_lease(connection, lease):
        name = name_of(row.reservation)
        size, before = sizes.get(name), _booked_units(row)
        if row.closing or (size is None and before == _booked_units(row.with_term(dates))):
            continue
        if not started and row.units:
            units = _rebook_reservation(connection, row, dates, size, specs[name]["min"])
        else:
            _extend_reservation(connection, row, dates.end)
            units = (
                _resize_reservation(connection, row._replace(ends=max(row.ends, dates.end)), size)
                if size
                else row.units
            )
            hand_over += [row.reservation] if units != row.units else []
        after = _booked_units(row.with_term(dates)._replace(units=units))
        plans[row.reservation] = BookingChange(before=before, after=after)
        _book_old_and_new_term(connection, row, dates, units)
    moves = [
        Move(path=row.path, to=row.status, spec={**row.spec, "min": size.min, "max": size.max})
        for row in now.reservations
        if (size := sizes.get(name_of(row.path)))
    ]
    texts = [_describe_resize(connection, reservation, plan) for reservation, plan in plans.items()]
    return LeaseGrantDetails(
        plans=plans, hand_over=sorted(set(hand_over)), moves=moves, changes=[text for text in texts if text]
    )


def describe_new_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns the changed values of a lease's spec, each with its old value."""
    return [f"{name} {old.get(name)} -> {value}" for name, value in new.items() if old.get(name) != value]


def _describe_resize(connection: sa.Connection, reservation: str, plan: BookingChange) -> str:
    """Returns how an update changes the hosts of a reservation; empty if it keeps them all."""
    rows = capacity.list_allocations(connection, allocations.c.reservation == reservation)
    joining = {name_of(row.host) for row in rows if row.phase == JOINING}
    leaving = {name_of(row.host) for row in rows if row.phase == LEAVING}
    texts = [f"{name_of(reservation)} {plan.before.units} -> {plan.after.units}"] if _is_resized(plan) else []
    texts += [f"gets {', '.join(sorted(joining - leaving))}"] if joining - leaving else []
    texts += [f"gives up {', '.join(sorted(leaving - joining))}"] if leaving - joining else []
    return " ".join(texts) if _is_resized(plan) or not texts else f"{name_of(reservation)} {' '.join(texts)}"


def _is_resized(plan: BookingChange) -> bool:
    return plan.before.units != plan.after.units


def finish_lease_update(connection: sa.Connection, lease: str, terms: LeaseGrantDetails, good: bool) -> None:
    """Ends an update: keeps the new allocations if it succeeded (`good`), else restores the old ones."""
    for row in capacity.lock_bookings_of_lease(connection, lease):
        if plan := terms.plans.get(row.reservation):
            if row.reservation in terms.hand_over and not good:
                _keep_uncertain_hosts(connection, row.reservation)
            _end_booking_change(connection, row, plan.after if good else plan.before, good)
    capacity.outdate_handover_orders(connection, sorted(terms.plans))


def count_hosts_after_update(connection: sa.Connection, lease: str, plans: Mapping[str, BookingChange]) -> int:
    """Returns how many whole hosts the lease will have after the update."""
    rows = [row for row in capacity.lock_bookings_of_lease(connection, lease) if row.whole]
    return sum(plans[row.reservation].after.units if row.reservation in plans else row.units for row in rows)


def list_returning_reservations(connection: sa.Connection, lease: str) -> list[str]:
    """Returns reservations with hosts that an earlier update may still have handed over."""
    rows = capacity.list_allocations(connection, allocations.c.lease == lease, allocations.c.phase == RETURNING)
    return list(dict.fromkeys(row.reservation for row in rows))


def plan_event_moves(
    connection: sa.Connection, now: LeaseParts, dates: Mapping[str, datetime], lease: ObjectRow
) -> list[Move]:
    """Returns the moves of events whose time the update changes. A before_end event that came too early is repeated."""
    moves = []
    for name in EVENTS:
        event, old, due = now.events[name], now.due_date_of(name), dates[name]
        if old == due:
            continue
        again = name == BEFORE_END and event.status in (EventStatus.DONE, EventStatus.ERROR)
        status = EventStatus.UNDONE if again else event.status
        moves.append(Move(path=event.path, to=status, spec={"due": format_date(due)}))
        fires = status == EventStatus.UNDONE and (name == END or lease.status != LeaseStatus.ERROR)
        if fires and (again or due < old):
            connection.execute(sa.delete(timers).where(timers.c.event == event.path))
            parts.insert_timers(connection, lease.path, lease.spec["pool"], {name: due})
    return moves


def _resizes_by_reservation(change: LeaseChange, specs: Mapping[str, Any]) -> dict[str, Resize]:
    """Returns the new sizes by reservation. Refuses a size that does not name one of several reservations."""
    sizes: dict[str, Resize] = {}
    for size in change.list_resizes():
        name = size.id or (next(iter(specs)) if len(specs) == 1 else "")
        if not name:
            raise _ambiguous_reservation_refusal(specs)
        if name not in specs:
            raise Refused(Category.INVALID, f"there is no reservation {name}", f"reservations are: {', '.join(specs)}")
        if "min" not in specs[name]:
            raise Refused(
                Category.INVALID, f"reservation {name} has no size: it is of type mci", "change its dates only"
            )
        if name in sizes:
            raise Refused(Category.INVALID, f"two sizes for reservation {name}", "say one of them")
        sizes[name] = size
    return sizes


def _rebook_reservation(
    connection: sa.Connection, row: BookingRow, dates: LeaseTerm, size: Resize | None, least: int
) -> int:
    """Allocates a reservation that has not started anew, preferring the hosts that it has. Returns its units."""
    mine = allocations.c.reservation == row.reservation
    rows = capacity.list_allocations(connection, mine)
    capacity.delete_allocations(connection, mine)  # its own allocations do not block the search
    least, most = (size.min, size.max or size.min) if size else (min(least, row.units), row.units)
    moved = row.with_term(dates)
    places = booking.allocate_units(connection, moved, least, most, [row.host for row in rows])
    if rows:
        connection.execute(sa.insert(allocations), [row._replace(phase=LEAVING)._asdict() for row in rows])
    capacity.insert_allocations(connection, moved, places, JOINING)
    return sum(places.values())


def _extend_reservation(connection: sa.Connection, each: BookingRow, ends: datetime) -> None:
    """Extends the allocations of a started reservation; refuses if one of its hosts is booked before the new end."""
    if ends <= each.ends:
        return
    mine = allocations.c.reservation == each.reservation
    rows = capacity.list_allocations(connection, mine)
    capacity.delete_allocations(connection, mine)
    for row in rows:  # one by one: two may be on one host
        moved = each._replace(starts=row.starts, ends=ends)
        found = capacity.find_hosts_with_room(connection, booking.build_host_search(moved, row.units), [row.host])
        if found.get(row.host, 0) < row.units:
            raise _host_taken_refusal(row, ends)
        connection.execute(sa.insert(allocations), row._replace(ends=ends)._asdict())


def _resize_reservation(connection: sa.Connection, row: BookingRow, size: Resize) -> int:
    """Adds or marks allocations for the new size of a started reservation. Returns its units after the update."""
    units, most = int(row.units), size.max or size.min
    if units < most:
        more = booking.allocate_units(connection, row, max(0, size.min - units), most - units)
        capacity.insert_allocations(connection, row, more, JOINING)
        return units + sum(more.values())
    rows = capacity.list_allocations(connection, allocations.c.reservation == row.reservation)
    _mark_units_leaving(connection, row, rows, sum(row.units for row in rows) - most)
    return most


def _mark_units_leaving(connection: sa.Connection, each: BookingRow, rows: list[AllocationRow], units: int) -> None:
    """Marks so many units as LEAVING, from the last host back; splits an allocation that leaves in part."""
    size = capacity.size_from_row(each)
    for row in reversed(rows):
        leaving = min(units, row.units)
        if leaving <= 0:
            return
        stay = row.units - leaving
        this = sa.update(allocations).where(allocations.c.id == row.id)
        if stay:
            connection.execute(this.values(units=stay, **capacity.size_columns(size.multiplied_by(stay))))
            part = each._replace(starts=row.starts, ends=row.ends)
            capacity.insert_allocations(connection, part, {row.host: leaving}, LEAVING)
        else:
            connection.execute(this.values(phase=LEAVING))
        units -= leaving


def _book_old_and_new_term(connection: sa.Connection, row: BookingRow, dates: LeaseTerm, units: int) -> None:
    values = {
        "starts": min(row.starts, dates.start),
        "ends": max(row.ends, dates.end),
        "units": max(row.units, units),
        "version": bookings.c.version + 1,
    }
    connection.execute(sa.update(bookings).where(bookings.c.reservation == row.reservation).values(**values))


def _keep_uncertain_hosts(connection: sa.Connection, reservation: str) -> None:
    """Marks JOINING hosts of a failed update as RETURNING: some may have been handed over already."""
    unsure = (allocations.c.reservation == reservation) & (allocations.c.phase == JOINING)
    connection.execute(sa.update(allocations).where(unsure).values(phase=RETURNING))


def _end_booking_change(connection: sa.Connection, row: BookingRow, terms: BookedUnits, good: bool) -> None:
    mine = allocations.c.reservation == row.reservation
    capacity.delete_allocations(connection, mine, allocations.c.phase == (LEAVING if good else JOINING))
    values: dict[str, Any] = terms.model_dump()
    now = sa.update(allocations).where(mine, allocations.c.phase != RETURNING)
    connection.execute(now.values(phase=HELD, ends=values["ends"]))
    if good and row.began_with is not None:
        values["began_with"] = sorted({row.host for row in capacity.list_allocations(connection, mine)})
    connection.execute(sa.update(bookings).where(bookings.c.reservation == row.reservation).values(**values))


def _booked_units(row: BookingRow) -> BookedUnits:
    return BookedUnits(starts=row.starts, ends=row.ends, units=row.units)


def _ambiguous_reservation_refusal(specs: Mapping[str, Any]) -> Refused:
    names = ", ".join(specs)
    example = next(iter(specs), "r1")
    return Refused(
        Category.INVALID,
        f"the lease has {len(specs)} reservations: {names}; say which one gets another size",
        f"give it by its name: reservations: [{{id: {example}, min: 2}}]",
    )


def _host_taken_refusal(row: AllocationRow, ends: datetime) -> Refused:
    return Refused(
        Category.QUOTA,
        f"host {name_of(row.host)} is booked by another lease before {format_date(ends)}; "
        f"{short_path(row.lease)} has started, so it keeps its hosts",
        "ask for an earlier end, or for a lease of its own",
    )
