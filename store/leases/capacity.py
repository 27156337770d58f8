"""Finds and allocates room on hosts. The caller holds the pool's allocation lock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain.leases.capacity import Allocation, Size, matches, room
from store.leases.tables import AllocationRow, BookingRow, HostRow, allocations, bookings, hosts
from store.rows import read_all

# During an update of a lease, JOINING rows become its own if the update succeeds; LEAVING rows stay so if it fails.
# RETURNING rows are not its own any more, but may still be handed over: they stay blocked until they are back.
HELD, JOINING, LEAVING, RETURNING = "held", "joining", "leaving", "returning"
_PAGE = 200  # hosts per query when instances are placed


@dataclass(frozen=True)
class RoomRequest:
    """A search for hosts: so many units, for a period, on hosts of a pool with these properties."""

    pool: str
    starts: datetime
    ends: datetime
    units: int
    whole: bool
    size: Size
    wants: Mapping[str, Any]


_OVERLAPPING = (
    (allocations.c.host == hosts.c.host)
    & (allocations.c.starts < sa.bindparam("until", type_=allocations.c.starts.type))
    & (allocations.c.ends > sa.bindparam("since", type_=allocations.c.ends.type))
)


# Built once: building a statement costs more than running it.
_FREE = sa.select(hosts.c.host).where(
    hosts.c.pool == sa.bindparam("of_pool"),
    hosts.c.host > sa.bindparam("first"),  # a path range, so that PostgreSQL does not read all hosts for their order
    hosts.c.host < sa.bindparam("last"),
    hosts.c.working,
    ~sa.exists().where(_OVERLAPPING),
)
_FREE_ANYWHERE = _FREE.order_by(hosts.c.host).limit(sa.bindparam("most", type_=sa.Integer))
_OF_LEASE = (
    sa.select(allocations)
    .where(allocations.c.lease == sa.bindparam("of_lease"))
    .order_by(allocations.c.host, allocations.c.id)
)
_TAKE = sa.insert(allocations)
_LOCKED = sa.select(bookings).order_by(bookings.c.reservation).with_for_update()
_LOCKED_OF_LEASE = _LOCKED.where(bookings.c.lease == sa.bindparam("of_lease"))
_LOCKED_THESE = _LOCKED.where(bookings.c.reservation.in_(sa.bindparam("these", expanding=True)))


def one_at_a_time(connection: sa.Connection, pool: str) -> None:
    """Serialises allocations in a pool until the transaction ends. On SQLite every writer is alone anyway."""
    if connection.dialect.name == "postgresql":
        key = sa.func.hashtextextended(f"lease capacity {pool}", 0)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))


def find(connection: sa.Connection, wish: RoomRequest, prefer: Sequence[str] = ()) -> dict[str, int]:
    """Finds hosts with room for up to the units asked for, as host -> units; hosts in `prefer` come first."""
    if wish.whole and not wish.wants and not prefer:
        asked = {"of_pool": wish.pool, "since": wish.starts, "until": wish.ends, "most": wish.units}
        asked |= {"first": f"pool:{wish.pool}:", "last": f"pool:{wish.pool};"}
        return dict.fromkeys(connection.execute(_FREE_ANYWHERE, asked).scalars(), 1)
    candidates = _candidates(connection, wish)
    if wish.whole:
        return dict.fromkeys(_free(connection, wish, candidates, prefer), 1)
    return _fitting(connection, wish, candidates, prefer)


def count(connection: sa.Connection, wish: RoomRequest) -> int:
    """Returns how many working hosts of the pool have the wanted properties."""
    return int(connection.execute(_count_of(_candidates(connection, wish))).scalar_one())


def take(connection: sa.Connection, booking: BookingRow, places: Mapping[str, int], phase: str = HELD) -> None:
    """Inserts the allocations of a booking."""
    size = size_of(booking)
    lines = [_allocation_row(booking, host, units, size, phase) for host, units in places.items()]
    if lines:
        connection.execute(_TAKE, lines)


def locked(connection: sa.Connection, lease: str) -> list[BookingRow]:
    """Locks and returns the bookings of a lease, by reservation path. Changes to allocations need this lock."""
    return read_all(BookingRow, connection.execute(_LOCKED_OF_LEASE, {"of_lease": lease}))


def lock(connection: sa.Connection, reservations: Iterable[str]) -> dict[str, BookingRow]:
    """Locks the bookings of these reservations, always in the same order, and returns the existing ones by path."""
    rows = connection.execute(_LOCKED_THESE, {"these": sorted(set(reservations))})
    return {row.reservation: row for row in read_all(BookingRow, rows)}


def held(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> list[AllocationRow]:
    """Returns the allocations that meet a condition, ordered by host."""
    query = sa.select(allocations).where(*which).order_by(allocations.c.host, allocations.c.id)
    return read_all(AllocationRow, connection.execute(query))


def held_by(connection: sa.Connection, lease: str) -> list[AllocationRow]:
    """Returns the allocations of a lease, ordered by host."""
    return read_all(AllocationRow, connection.execute(_OF_LEASE, {"of_lease": lease}))


def drop(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> None:
    """Deletes allocations; their bookings stay."""
    connection.execute(sa.delete(allocations).where(*which))


def raise_version(connection: sa.Connection, reservations: Sequence[str]) -> None:
    """Raises the version of these bookings, which makes earlier hand-over orders stale."""
    change = sa.update(bookings).where(bookings.c.reservation.in_(reservations))
    connection.execute(change.values(version=bookings.c.version + 1))


def size_of(row: HostRow | BookingRow | AllocationRow) -> Size:
    """Returns the size in a row: of a host, of one unit of a booking, or of a whole allocation."""
    return Size(row.vcpus, row.memory_mb, row.disk_gb)


def _candidates(connection: sa.Connection, wish: RoomRequest) -> sa.Select[Any]:
    """Builds the query for the working hosts of the pool with the wanted properties."""
    query = sa.select(hosts).where(hosts.c.pool == wish.pool, hosts.c.working)
    if not wish.wants:
        return query
    known = connection.execute(sa.select(hosts.c.profile).where(hosts.c.pool == wish.pool).distinct()).scalars()
    fitting = [profile for profile in known if matches(json.loads(profile), wish.wants)]
    return query.where(hosts.c.profile.in_(fitting))


def _count_of(candidates: sa.Select[Any]) -> sa.Select[Any]:
    return sa.select(sa.func.count()).select_from(candidates.subquery())


def _free(connection: sa.Connection, wish: RoomRequest, candidates: sa.Select[Any], prefer: Sequence[str]) -> list[str]:
    """Returns hosts without any allocation during the period."""
    rank = sa.case((hosts.c.host.in_(prefer), 0), else_=1)
    query = (
        candidates.with_only_columns(hosts.c.host)
        .where(~sa.exists().where(_OVERLAPPING))
        .order_by(*((rank,) if prefer else ()), hosts.c.host)
        .limit(wish.units)
    )
    return list(connection.execute(query, {"since": wish.starts, "until": wish.ends}).scalars())


def _fitting(
    connection: sa.Connection, wish: RoomRequest, candidates: sa.Select[Any], prefer: Sequence[str]
) -> dict[str, int]:
    """Places instances on shared hosts in the order of their names, as many as fit on each: host -> units."""
    places: dict[str, int] = {}
    left = wish.units
    for host, taken in _with_taken(connection, wish, candidates, prefer):
        fits = min(left, room(size_of(host), taken, wish.starts, wish.ends, wish.size))
        if fits:
            places[host.host] = fits
            left -= fits
        if not left:
            break
    return places


def _with_taken(
    connection: sa.Connection, wish: RoomRequest, candidates: sa.Select[Any], prefer: Sequence[str]
) -> Iterator[tuple[HostRow, list[Allocation]]]:
    """Yields each candidate host with its allocations during the period."""
    found = read_all(HostRow, connection.execute(candidates.order_by(hosts.c.host)))
    found.sort(key=lambda host: (host.host not in prefer, host.host))
    for first in range(0, len(found), _PAGE):
        page = found[first : first + _PAGE]
        taken = held(
            connection,
            allocations.c.host.in_([host.host for host in page]),
            allocations.c.starts < wish.ends,
            allocations.c.ends > wish.starts,
        )
        for host in page:
            mine = (row for row in taken if row.host == host.host)
            yield host, [Allocation(row.starts, row.ends, size_of(row), row.whole) for row in mine]


def _allocation_row(booking: BookingRow, host: str, units: int, size: Size, phase: str) -> dict[str, Any]:
    kept = {name: getattr(booking, name) for name in ("reservation", "lease", "starts", "ends", "whole")}
    return kept | {"host": host, "units": units, "phase": phase, **columns(size.times(units))}


def columns(size: Size) -> dict[str, int]:
    """A size as the tables have it."""
    return {"vcpus": size.vcpus, "memory_mb": size.memory_mb, "disk_gb": size.disk_gb}
