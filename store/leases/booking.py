"""Booking: what a lease asks for is found and taken for its whole term, or the request is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.leases.capacity import Size, Taken, peak
from domain.leases.dates import stamp
from domain.leases.spec import Instances, Limits, MciLease, PhysicalHosts, Resize, Term
from domain.paths import name_of, short
from store.leases import capacity
from store.leases.capacity import HELD, JOINING, LEAVING, Line, Wish
from store.leases.tables import allocations, bookings

NOTHING = Size(0, 0, 0)
LIMITS = "lease_limits"  # how a database is told of them: see the worker's own file

_BOOK = sa.insert(bookings)
_OTHERS = (bookings.c.project == sa.bindparam("of_project"), bookings.c.lease != sa.bindparam("but"))
_LEASES = sa.select(sa.func.count(bookings.c.lease.distinct())).where(*_OTHERS)
_WITHIN = (
    *_OTHERS,
    bookings.c.whole,
    bookings.c.ends > sa.bindparam("since", type_=bookings.c.ends.type),
    bookings.c.starts < sa.bindparam("until", type_=bookings.c.starts.type),
)
_HOSTS = sa.select(sa.func.sum(bookings.c.units)).where(*_WITHIN)
_EACH = sa.select(bookings.c.starts, bookings.c.ends, bookings.c.units).where(*_WITHIN)

Wanted = PhysicalHosts | Instances | MciLease


def limits_of(connection: sa.Connection) -> Limits:
    """What this database was told when it was opened."""
    found = connection.get_execution_options().get(LIMITS)
    return found if isinstance(found, Limits) else Limits()


def book(connection: sa.Connection, new: Mapping[str, Any], wanted: Wanted, dates: Term) -> None:
    """One reservation of a new lease."""
    booking = {
        **new,
        "version": 1,
        "starts": dates.start,
        "ends": dates.end,
        "units": 0,
        "whole": isinstance(wanted, PhysicalHosts),
        "wants": {} if isinstance(wanted, MciLease) else wanted.resource_properties,
        "began_with": None,
        "closing": False,
        **_columns(_size(wanted)),
    }
    places: dict[str, int] = {}
    if not isinstance(wanted, MciLease):
        places = place(connection, booking, wanted.min, wanted.most)
    connection.execute(_BOOK, booking | {"units": sum(places.values())})
    capacity.take(connection, booking, places)


def place(
    connection: sa.Connection, booking: Mapping[str, Any], least: int, most: int, prefer: Sequence[str] = ()
) -> dict[str, int]:
    """Room for at least so many and at most so many units, or Refused with the numbers."""
    wish = wish_of(booking, most)
    places = capacity.find(connection, wish, prefer)
    if (found := sum(places.values())) < least:
        raise _not_enough(connection, wish, least, found)
    return places


def wish_of(booking: Mapping[str, Any], units: int) -> Wish:
    """What a reservation asks for, as the search for hosts wants it."""
    return Wish(
        pool=booking["pool"],
        starts=booking["starts"],
        ends=booking["ends"],
        units=units,
        whole=booking["whole"],
        size=capacity.size_of(booking),
        wants=booking["wants"],
    )


def rebook(connection: sa.Connection, booking: dict[str, Any], dates: Term, size: Resize | None, least: int) -> None:
    """A reservation that has not started: everything anew, on the same hosts as far as possible."""
    mine = allocations.c.reservation == booking["reservation"]
    before = [row["host"] for row in capacity.held(connection, mine)]
    capacity.drop(connection, mine)
    moved = booking | {"starts": dates.start, "ends": dates.end}
    if size:
        places = place(connection, moved, size.min, size.max or size.min, before)
    else:
        places = place(connection, moved, min(least, booking["units"]), booking["units"], before)
    _change(connection, booking, starts=dates.start, ends=dates.end, units=sum(places.values()))
    capacity.take(connection, moved, places)


def extend(connection: sa.Connection, booking: dict[str, Any], ends: datetime) -> None:
    """A reservation that has started keeps its hosts: each must be free until the new end."""
    mine = allocations.c.reservation == booking["reservation"]
    rows = capacity.held(connection, mine)
    if ends > booking["ends"]:
        capacity.drop(connection, mine)
        for row in rows:
            moved = booking | {"starts": row["starts"], "ends": ends}
            found = capacity.find(connection, wish_of(moved, row["units"]), [row["host"]])
            if found.get(row["host"], 0) < row["units"]:
                raise _taken(row, ends)
        connection.execute(sa.insert(allocations), [dict(row) | {"ends": ends} for row in rows])
    connection.execute(sa.update(allocations).where(mine).values(ends=ends))
    _change(connection, booking, ends=ends)


def resize(connection: sa.Connection, booking: dict[str, Any], size: Resize) -> bool:
    """Another size for a reservation that has started: hosts join or leave when the update ends. False: it fits."""
    now, most = booking["units"], size.max or size.min
    if now < most:
        more = place(connection, booking, max(0, size.min - now), most - now)
        capacity.take(connection, booking, more, JOINING)
        units = now + sum(more.values())
    else:
        _let_go(connection, booking, now - most)
        units = most
    _change(connection, booking, units=units)
    return bool(units != now)


def settle_resize(connection: sa.Connection, lease: str, good: bool) -> None:
    """The resize has ended: who was joining or leaving has, or stays as before."""
    mine = allocations.c.lease == lease
    under_way = capacity.held(connection, mine, allocations.c.phase != HELD)
    if not under_way:
        return
    capacity.drop(connection, mine, allocations.c.phase == (LEAVING if good else JOINING))
    connection.execute(sa.update(allocations).where(mine).values(phase=HELD))
    for reservation in dict.fromkeys(row["reservation"] for row in under_way):
        rows = capacity.held(connection, allocations.c.reservation == reservation)
        hosts_now = sorted({row["host"] for row in rows})
        change = sa.update(bookings).where(bookings.c.reservation == reservation)
        connection.execute(change.values(units=sum(row["units"] for row in rows), began_with=hosts_now))
    capacity.raise_version(connection, list(dict.fromkeys(row["reservation"] for row in under_way)))


def check_quota(connection: sa.Connection, lease: str, dates: Term, hosts: int, limits: Limits) -> None:
    """Refused if the project would have more leases, or more hosts at one time, than it may."""
    project = lease.split(":")[1]
    others = {"of_project": project, "but": lease}
    leases = connection.execute(_LEASES, others).scalar_one()
    if leases >= limits.leases:
        raise _over(f"project {project} has {leases} leases: the limit is {limits.leases}")
    within = others | {"since": dates.start, "until": dates.end}
    at_most = connection.execute(_HOSTS, within).scalar_one() or 0
    if at_most + hosts <= limits.hosts:
        return  # even if all of them were at the same moment
    rows = connection.execute(_EACH, within).all()
    most = peak(Taken(max(dates.start, starts), ends, Size(units, 0, 0)) for starts, ends, units in rows).vcpus
    if most + hosts > limits.hosts:
        raise _over(f"project {project} would hold {most + hosts} hosts at one time: the limit is {limits.hosts}")


def release(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> None:
    """Bookings that are over, with all that they held."""
    gone = sa.select(bookings.c.reservation).where(*which)
    connection.execute(sa.delete(allocations).where(allocations.c.reservation.in_(gone)))
    connection.execute(sa.delete(bookings).where(*which))


def _let_go(connection: sa.Connection, booking: Mapping[str, Any], units: int) -> None:
    """Mark so many units as leaving, from the last host back; a host may keep some."""
    size = capacity.size_of(booking)
    for row in reversed(capacity.held(connection, allocations.c.reservation == booking["reservation"])):
        leaving = min(units, row["units"])
        if leaving == 0:
            return
        stay = row["units"] - leaving
        this = sa.update(allocations).where(allocations.c.id == row["id"])
        if stay:
            connection.execute(this.values(units=stay, **_columns(size.times(stay))))
            capacity.take(connection, booking, {row["host"]: leaving}, LEAVING)
        else:
            connection.execute(this.values(phase=LEAVING))
        units -= leaving


def _change(connection: sa.Connection, booking: Mapping[str, Any], **values: Any) -> None:
    this = sa.update(bookings).where(bookings.c.reservation == booking["reservation"])
    connection.execute(this.values(version=bookings.c.version + 1, **values))


def _size(wanted: Wanted) -> Size:
    return Size(wanted.vcpus, wanted.memory_mb, wanted.disk_gb) if isinstance(wanted, Instances) else NOTHING


def _columns(size: Size) -> dict[str, int]:
    return {"vcpus": size.vcpus, "memory_mb": size.memory_mb, "disk_gb": size.disk_gb}


def _not_enough(connection: sa.Connection, wish: Wish, least: int, found: int) -> Refused:
    what = "hosts" if wish.whole else "instances"
    fitting = capacity.count(connection, wish)
    asked = f" with {', '.join(f'{name} {value}' for name, value in wish.wants.items())}" if wish.wants else ""
    return Refused(
        Category.QUOTA,
        f"not enough {what}: {least} wanted, room for {found} in pool {wish.pool} from {stamp(wish.starts)} to "
        f"{stamp(wish.ends)}; the pool has {fitting} working hosts{asked}",
        f"see who holds what: starter lease calendar --pool {wish.pool}",
    )


def _taken(row: Line, ends: datetime) -> Refused:
    return Refused(
        Category.QUOTA,
        f"host {name_of(row['host'])} is booked by another lease before {stamp(ends)}; "
        f"{short(row['lease'])} has started, so it keeps its hosts",
        "ask for an earlier end, or for a lease of its own",
    )


def _over(message: str) -> Refused:
    return Refused(Category.QUOTA, message, "end or delete a lease of the project, or ask for a higher limit")
