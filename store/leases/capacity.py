"""Finds and allocates room on hosts. The caller holds the pool's allocation lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import starmap
from typing import Any

import sqlalchemy as sa

from domain.leases.capacity import Allocation, ResourceSize, count_fitting_instances
from domain.leases.properties import parse_condition
from store.advisory import acquire_key_lock
from store.leases.properties import host_condition_clause
from store.leases.tables import AllocationRow, BookingRow, HostRow, allocations, bookings, hosts

# During an update of a lease, JOINING rows become its own if the update succeeds; LEAVING rows stay so if it fails.
# RETURNING rows are not its own any more, but may still be handed over: they stay blocked until they are back.
HELD, JOINING, LEAVING, RETURNING = "held", "joining", "leaving", "returning"
_PAGE_SIZE = 200  # hosts per query when instances are placed


@dataclass(frozen=True)
class HostSearch:
    """A search for hosts: so many units, for a period, on hosts of a pool with these properties."""

    pool: str
    starts: datetime
    ends: datetime
    units: int
    whole: bool
    size: ResourceSize
    wants: Sequence[Any]  # a property expression; empty: any host
    reservation: str = ""  # which already has some hosts, as an affinity looks at
    affinity: bool | None = None


_OVERLAPS_PERIOD = (
    (allocations.c.host == hosts.c.host)
    & (allocations.c.starts < sa.bindparam("until", type_=allocations.c.starts.type))
    & (allocations.c.ends > sa.bindparam("since", type_=allocations.c.ends.type))
)


# Built once: building a statement costs more than running it.
_SELECT_FREE_HOSTS = sa.select(hosts.c.host).where(
    hosts.c.pool == sa.bindparam("of_pool"),
    hosts.c.host > sa.bindparam("first"),  # a path range, so that PostgreSQL does not read all hosts for their order
    hosts.c.host < sa.bindparam("last"),
    hosts.c.working,
    ~sa.exists().where(_OVERLAPS_PERIOD),
)
_SELECT_FIRST_FREE_HOSTS = _SELECT_FREE_HOSTS.order_by(hosts.c.host).limit(sa.bindparam("most", type_=sa.Integer))
_SELECT_ALLOCATIONS_OF_LEASE = (
    sa.select(allocations)
    .where(allocations.c.lease == sa.bindparam("of_lease"))
    .order_by(allocations.c.host, allocations.c.id)
)
_INSERT_ALLOCATIONS = sa.insert(allocations)
_LOCK_BOOKINGS = sa.select(bookings).order_by(bookings.c.reservation).with_for_update()
_LOCK_BOOKINGS_OF_LEASE = _LOCK_BOOKINGS.where(bookings.c.lease == sa.bindparam("of_lease"))
_LOCK_THESE_BOOKINGS = _LOCK_BOOKINGS.where(bookings.c.reservation.in_(sa.bindparam("these", expanding=True)))


def serialize_pool_allocations(connection: sa.Connection, pool: str) -> None:
    """Serialises allocations in a pool until the transaction ends."""
    acquire_key_lock(connection, f"lease capacity {pool}")


def find_hosts_with_room(connection: sa.Connection, wish: HostSearch, prefer: Sequence[str] = ()) -> dict[str, int]:
    """Finds hosts with room for up to the units asked for, as host -> units; hosts in `prefer` come first."""
    if wish.whole and not wish.wants and not prefer:
        asked = {"of_pool": wish.pool, "since": wish.starts, "until": wish.ends, "most": wish.units}
        asked |= {"first": f"pool:{wish.pool}:", "last": f"pool:{wish.pool};"}
        return dict.fromkeys(connection.execute(_SELECT_FIRST_FREE_HOSTS, asked).scalars(), 1)
    candidates = _select_candidate_hosts(wish)
    if wish.whole:
        return dict.fromkeys(_find_free_hosts(connection, wish, candidates, prefer), 1)
    return _find_shared_hosts(connection, wish, candidates, prefer)


def count_matching_hosts(connection: sa.Connection, wish: HostSearch) -> int:
    """Returns how many working hosts of the pool have the wanted properties."""
    candidates = _select_candidate_hosts(wish).subquery()
    return int(connection.execute(sa.select(sa.func.count()).select_from(candidates)).scalar_one())


def insert_allocations(
    connection: sa.Connection, booking: BookingRow, places: Mapping[str, int], phase: str = HELD
) -> None:
    """Inserts the allocations of a booking."""
    kept = {name: getattr(booking, name) for name in ("reservation", "lease", "starts", "ends", "whole")}
    size = size_from_row(booking)
    lines = [
        kept | {"host": host, "units": units, "phase": phase, **size_columns(size.multiplied_by(units))}
        for host, units in places.items()
    ]
    if lines:
        connection.execute(_INSERT_ALLOCATIONS, lines)


def lock_bookings_of_lease(connection: sa.Connection, lease: str) -> list[BookingRow]:
    """Locks and returns the bookings of a lease, by reservation path. Changes to allocations need this lock."""
    return [BookingRow(*row) for row in connection.execute(_LOCK_BOOKINGS_OF_LEASE, {"of_lease": lease})]


def lock_bookings(connection: sa.Connection, reservations: Iterable[str]) -> dict[str, BookingRow]:
    """Locks the bookings of these reservations, always in the same order, and returns the existing ones by path."""
    rows = connection.execute(_LOCK_THESE_BOOKINGS, {"these": sorted(set(reservations))})
    return {row.reservation: row for row in starmap(BookingRow, rows)}


def list_allocations(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> list[AllocationRow]:
    """Returns the allocations that meet a condition, ordered by host."""
    query = sa.select(allocations).where(*which).order_by(allocations.c.host, allocations.c.id)
    return [AllocationRow(*row) for row in connection.execute(query)]


def list_allocations_of_lease(connection: sa.Connection, lease: str) -> list[AllocationRow]:
    """Returns the allocations of a lease, ordered by host."""
    return [AllocationRow(*row) for row in connection.execute(_SELECT_ALLOCATIONS_OF_LEASE, {"of_lease": lease})]


def delete_allocations(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> None:
    """Deletes allocations; their bookings stay."""
    connection.execute(sa.delete(allocations).where(*which))


def outdate_handover_orders(connection: sa.Connection, reservations: Sequence[str]) -> None:
    """Raises the version of these bookings, which makes earlier hand-over orders stale."""
    change = sa.update(bookings).where(bookings.c.reservation.in_(reservations))
    connection.execute(change.values(version=bookings.c.version + 1))


def size_from_row(row: HostRow | BookingRow | AllocationRow) -> ResourceSize:
    """Returns the size in a row: of a host, of one unit of a booking, or of a whole allocation."""
    return ResourceSize(row.vcpus, row.memory_mb, row.disk_gb)


def _select_candidate_hosts(wish: HostSearch) -> sa.Select[Any]:
    """Builds the query for the working hosts of the pool with the wanted properties."""
    query = sa.select(hosts).where(hosts.c.pool == wish.pool, hosts.c.working)
    condition = parse_condition(wish.wants)
    return query if condition is None else query.where(host_condition_clause(condition))


def _find_free_hosts(
    connection: sa.Connection, wish: HostSearch, candidates: sa.Select[Any], prefer: Sequence[str]
) -> list[str]:
    """Returns hosts without any allocation during the period."""
    rank = sa.case((hosts.c.host.in_(prefer), 0), else_=1)
    query = (
        candidates.with_only_columns(hosts.c.host)
        .where(~sa.exists().where(_OVERLAPS_PERIOD))
        .order_by(*((rank,) if prefer else ()), hosts.c.host)
        .limit(wish.units)
    )
    return list(connection.execute(query, {"since": wish.starts, "until": wish.ends}).scalars())


def _find_shared_hosts(
    connection: sa.Connection, wish: HostSearch, candidates: sa.Select[Any], prefer: Sequence[str]
) -> dict[str, int]:
    """Places instances on shared hosts in the order of their names, as many as fit on each: host -> units."""
    places: dict[str, int] = {}
    left = wish.units
    own = _hosts_of_reservation(connection, wish) if wish.affinity is not None else set[str]()
    for host, taken in _hosts_with_allocations(connection, wish, candidates, prefer):
        if own and wish.affinity is not (host.host in own):
            continue
        fits = min(left, count_fitting_instances(size_from_row(host), taken, wish.starts, wish.ends, wish.size))
        if wish.affinity:  # all on one host: the first with room for all, else the one with the most room
            if fits > sum(places.values()):
                places = {host.host: fits}
            if fits == wish.units:
                break
        elif fits:
            fits = 1 if wish.affinity is False else fits
            places[host.host] = fits
            left -= fits
        if not left:
            break
    return places


def _hosts_of_reservation(connection: sa.Connection, wish: HostSearch) -> set[str]:
    rows = list_allocations(connection, allocations.c.reservation == wish.reservation, allocations.c.phase != RETURNING)
    return {row.host for row in rows}


def _hosts_with_allocations(
    connection: sa.Connection, wish: HostSearch, candidates: sa.Select[Any], prefer: Sequence[str]
) -> Iterator[tuple[HostRow, list[Allocation]]]:
    """Yields each candidate host with its allocations during the period."""
    found = [HostRow(*row) for row in connection.execute(candidates.order_by(hosts.c.host))]
    found.sort(key=lambda host: (host.host not in prefer, host.host))
    for first in range(0, len(found), _PAGE_SIZE):
        page = found[first : first + _PAGE_SIZE]
        taken = list_allocations(
            connection,
            allocations.c.host.in_([host.host for host in page]),
            allocations.c.starts < wish.ends,
            allocations.c.ends > wish.starts,
        )
        for host in page:
            mine = (row for row in taken if row.host == host.host)
            yield host, [Allocation(row.starts, row.ends, size_from_row(row), row.whole) for row in mine]


def size_columns(size: ResourceSize) -> dict[str, int]:
    """Returns a size as column values."""
    return {"vcpus": size.vcpus, "memory_mb": size.memory_mb, "disk_gb": size.disk_gb}
