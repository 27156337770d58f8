"""Hooks of hosts: adding, failing, recovering and removing one change the bookings of its pool."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.leases.messages import LeaseGrantDetails
from domain.leases.specs import HostSpec, HostUpdateSpec
from domain.leases.tables import HostStatus, LeaseStatus, ReservationStatus
from domain.model import Grant, Outcome
from domain.paths import name_of, short_path
from store.hooks import AdmissionFacts, GrantExtras
from store.leases import capacity, properties
from store.leases.booking import build_host_search
from store.leases.capacity import RETURNING
from store.leases.swaps import HostSwap, HostSwaps, describe_swaps_by_lease, record_host_swaps
from store.leases.tables import BookingRow, HostRow, allocations, bookings, hosts
from store.schema import objects

HOLDERS_SHOWN = 5


def begin_host_action(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Changes the pool's capacity and bookings at begin; returns the started reservations to hand over afterwards."""
    claim, spec, object_row, row = facts
    host, pool = claim.request.path, claim.request.path.split(":")[1]
    with connection.begin_nested():
        capacity.serialize_pool_allocations(connection, pool)
        if row.action == "remove":
            _check_host_unused(connection, host)
            _set_host_working(connection, host, False)  # no new allocations from now on
            return GrantExtras()
        if row.action == "update":
            assert isinstance(spec, HostUpdateSpec)
            assert object_row
            changed_spec = HostSpec.model_validate(object_row.spec).with_updated_properties(spec)
            _store_properties(connection, host, changed_spec)
            properties.store_visibility(connection, pool, spec.visibility())
            return GrantExtras(spec=changed_spec.model_dump(mode="json"))
        if row.action == "add":
            assert isinstance(spec, HostSpec)
            _insert_host(connection, host, pool, spec)
        _set_host_working(connection, host, row.action != "fail")
        swaps = HostSwaps(HostSwap)
        if row.action == "fail":
            _reallocate_bookings(connection, host, claim.at, swaps)
        _refill_bookings(connection, pool, claim.at, swaps)
        in_use = _filter_started_reservations(connection, list(swaps))
        return GrantExtras(details=LeaseGrantDetails(hand_over=in_use, swaps=describe_swaps_by_lease(swaps)))


def finish_host_action(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """When an action on a host ends: offers the host to leases only if it is UP, deletes its capacity if it was
    removed, and records which hosts leases have swapped.
    """
    status = connection.execute(sa.select(objects.c.status).where(objects.c.path == grant.path)).scalar_one_or_none()
    if status is None:
        connection.execute(sa.delete(hosts).where(hosts.c.host == grant.path))
        properties.store_properties(connection, grant.path, {})
    else:
        _set_host_working(connection, grant.path, status == HostStatus.UP)
    swaps = LeaseGrantDetails.model_validate(grant.details).swaps
    record_host_swaps(connection, swaps, f"{grant.action} of host {name_of(grant.path)}", at)


def _insert_host(connection: sa.Connection, host: str, pool: str, spec: HostSpec) -> None:
    row = HostRow(host, pool, spec.vcpus, spec.memory_mb, spec.disk_gb, working=True)
    connection.execute(sa.insert(hosts), row._asdict())
    _store_properties(connection, host, spec)


def _store_properties(connection: sa.Connection, host: str, spec: HostSpec) -> None:
    properties.store_properties(connection, host, {**spec.all_properties(), "name": name_of(host)})


def _set_host_working(connection: sa.Connection, host: str, working: bool) -> None:
    connection.execute(sa.update(hosts).where(hosts.c.host == host).values(working=working))


def _check_host_unused(connection: sa.Connection, host: str) -> None:
    leases = dict.fromkeys(row.lease for row in capacity.list_allocations(connection, allocations.c.host == host))
    if leases:
        shown = ", ".join(short_path(lease) for lease in list(leases)[:HOLDERS_SHOWN])
        more = f" and {len(leases) - HOLDERS_SHOWN} more" if len(leases) > HOLDERS_SHOWN else ""
        raise Refused(
            Category.NOT_ALLOWED,
            f"{short_path(host)} is booked by {shown}{more}",
            f"wait until they have ended, or give them other hosts: starter host fail {short_path(host)}",
        )


def _reallocate_bookings(connection: sa.Connection, host: str, at: datetime, swaps: HostSwaps) -> None:
    """Replaces a failed host in all bookings, the earliest first, where other hosts have room.

    Each allocation is replaced for its own period and phase, so that leases under update stay right, too.
    """
    which = (allocations.c.host == host, allocations.c.ends > at)
    touched = capacity.lock_bookings(
        connection, [row.reservation for row in capacity.list_allocations(connection, *which)]
    )
    rows = capacity.list_allocations(connection, *which)  # read again under the lock
    for row in sorted(rows, key=lambda row: (row.starts, row.id)):
        capacity.delete_allocations(connection, allocations.c.id == row.id)
        if row.phase != RETURNING and (mine := touched.get(row.reservation)) and not mine.closing:
            rest = mine._replace(starts=max(row.starts, at), ends=row.ends)
            places = capacity.find_hosts_with_room(
                connection, build_host_search(rest, row.units), mine.began_with or ()
            )
            capacity.insert_allocations(connection, rest, places, row.phase)
            swaps[row.reservation].lost[host] = row.units
            swaps[row.reservation].gained |= places
    for reservation in touched:
        _ = swaps[reservation]  # also one that only returns hosts is handed over anew
    capacity.outdate_handover_orders(connection, list(touched))


def _refill_bookings(connection: sa.Connection, pool: str, at: datetime, swaps: HostSwaps) -> None:
    """Gives bookings with missing units what room there is, the earliest first.

    Skips leases under update: what they miss is not known before the update ends.
    """
    have = (  # per booking: a join would count those of all pools
        sa.select(sa.func.coalesce(sa.func.sum(allocations.c.units), 0))
        .where(allocations.c.reservation == bookings.c.reservation, allocations.c.phase != RETURNING)
        .scalar_subquery()
    )
    short_of = bookings.c.units - have
    query = (
        sa.select(bookings, short_of.label("missing"))
        .join(objects, objects.c.path == bookings.c.lease)
        .where(bookings.c.pool == pool, bookings.c.ends > at, ~bookings.c.closing, short_of > 0)
        .where(objects.c.status != LeaseStatus.UPDATING.value)
        .order_by(bookings.c.starts, bookings.c.reservation)
    )
    if capacity.lock_bookings(connection, [row.reservation for row in connection.execute(query)]):
        missing = [(BookingRow(*row), units) for *row, units in connection.execute(query)]  # others may have ended
        for booking, units in missing:
            if places := _refill_booking(connection, booking, units, at):
                swaps[booking.reservation].gained |= places


def _refill_booking(connection: sa.Connection, booking: BookingRow, units: int, at: datetime) -> dict[str, int]:
    rest = booking._replace(starts=max(booking.starts, at))
    places = capacity.find_hosts_with_room(connection, build_host_search(rest, units), booking.began_with or ())
    capacity.insert_allocations(connection, rest, places)
    capacity.outdate_handover_orders(connection, [booking.reservation])
    return places


def _filter_started_reservations(connection: sa.Connection, reservations: list[str]) -> list[str]:
    """Returns those reservations that have started or are starting: their hosts must be handed over anew."""
    if not reservations:
        return []
    lease = objects.alias("lease")
    query = (
        sa.select(objects.c.path)
        .join(lease, lease.c.path == objects.c.parent)
        .where(objects.c.path.in_(reservations))
        .where((objects.c.status == ReservationStatus.ACTIVE.value) | (lease.c.status == LeaseStatus.STARTING.value))
    )
    return sorted(connection.execute(query).scalars())
