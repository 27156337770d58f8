"""Booking: allocates hosts to the reservations of a lease for its whole term, or refuses the request."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from domain.errors import Category, Refused, format_count
from domain.leases.capacity import Allocation, ResourceSize, peak_usage
from domain.leases.dates import format_date
from domain.leases.properties import condition_as_list, parse_condition
from domain.leases.specs import HostReservation, Instances, LeaseLimits, LeaseTerm, MciReservation
from domain.paths import parent_of
from store.leases import capacity
from store.leases.capacity import HostSearch
from store.leases.tables import BookingRow, allocations, bookings, hosts

NO_SIZE = ResourceSize(0, 0, 0)

_INSERT_BOOKING = sa.insert(bookings)
_IS_OTHER_LEASE_OF_PROJECT = (bookings.c.project == sa.bindparam("of_project"), bookings.c.lease != sa.bindparam("but"))
_COUNT_LEASES = sa.select(sa.func.count(bookings.c.lease.distinct())).where(*_IS_OTHER_LEASE_OF_PROJECT)
_OVERLAPS_PERIOD = (
    *_IS_OTHER_LEASE_OF_PROJECT,
    bookings.c.whole,
    bookings.c.ends > sa.bindparam("since", type_=bookings.c.ends.type),
    bookings.c.starts < sa.bindparam("until", type_=bookings.c.starts.type),
)
_SUM_BOOKED_HOSTS = sa.select(sa.func.sum(bookings.c.units)).where(*_OVERLAPS_PERIOD)
_SELECT_BOOKED_PERIODS = sa.select(bookings.c.starts, bookings.c.ends, bookings.c.units).where(*_OVERLAPS_PERIOD)
# By a list: with a subquery, PostgreSQL reads the whole table.
_DELETE_ALLOCATIONS = sa.delete(allocations).where(allocations.c.reservation.in_(sa.bindparam("these", expanding=True)))
_DELETE_BOOKINGS = sa.delete(bookings).where(bookings.c.reservation.in_(sa.bindparam("these", expanding=True)))

_COUNT_HOSTS = sa.select(sa.func.count(hosts.c.host)).where(hosts.c.pool == sa.bindparam("of_pool"))

AnyReservationSpec = HostReservation | Instances | MciReservation


def book_reservation(
    connection: sa.Connection, reservation: str, run: str, pool: str, wanted: AnyReservationSpec, dates: LeaseTerm
) -> None:
    """Books one reservation of a new lease, with its allocations."""
    size = ResourceSize(wanted.vcpus, wanted.memory_mb, wanted.disk_gb) if isinstance(wanted, Instances) else NO_SIZE
    booking = BookingRow(
        reservation=reservation,
        lease=parent_of(reservation) or "",
        project=reservation.split(":")[1],
        pool=pool,
        token=f"{reservation}#{run}",
        version=1,
        starts=dates.start,
        ends=dates.end,
        units=0,
        whole=isinstance(wanted, HostReservation),
        **capacity.size_columns(size),
        wants=[]
        if isinstance(wanted, MciReservation)
        else condition_as_list(parse_condition(wanted.resource_properties)),
        affinity=wanted.affinity if isinstance(wanted, Instances) else None,
        began_with=None,
        closing=False,
    )
    places: dict[str, int] = {}
    if not isinstance(wanted, MciReservation):
        places = allocate_units(connection, booking, wanted.min, wanted.max_units)
    connection.execute(_INSERT_BOOKING, booking._replace(units=sum(places.values()))._asdict())
    capacity.insert_allocations(connection, booking, places)


def allocate_units(
    connection: sa.Connection, booking: BookingRow, least: int, most: int, prefer: Sequence[str] = ()
) -> dict[str, int]:
    """Finds room for `least` to `most` units, as host -> units. Refuses with the numbers if there is less."""
    wish = build_host_search(booking, most)
    places = capacity.find_hosts_with_room(connection, wish, prefer)
    if (found := sum(places.values())) < least:
        raise _no_room_refusal(connection, wish, least, found)
    return places


def build_host_search(booking: BookingRow, units: int) -> HostSearch:
    """Builds the search for hosts from a booking."""
    return HostSearch(
        pool=booking.pool,
        starts=booking.starts,
        ends=booking.ends,
        units=units,
        whole=booking.whole,
        size=capacity.size_from_row(booking),
        wants=booking.wants,
        reservation=booking.reservation,
        affinity=booking.affinity,
    )


def check_quota(
    connection: sa.Connection, lease: str, dates: LeaseTerm, number_of_hosts: int, limits: LeaseLimits
) -> None:
    """Refuses if the project would exceed its limit of leases, or of hosts at one time."""
    project = lease.split(":")[1]
    others = {"of_project": project, "but": lease}
    leases = connection.execute(_COUNT_LEASES, others).scalar_one()
    if leases >= limits.leases:
        raise _quota_refusal(f"project {project} has {format_count(leases, 'lease')}: the limit is {limits.leases}")
    within = others | {"since": dates.start, "until": dates.end}
    at_most = connection.execute(_SUM_BOOKED_HOSTS, within).scalar_one() or 0
    if at_most + number_of_hosts <= limits.hosts:
        return  # within the limit even if all of them overlap
    rows = connection.execute(_SELECT_BOOKED_PERIODS, within).all()
    most = peak_usage(
        Allocation(max(dates.start, starts), ends, ResourceSize(units, 0, 0)) for starts, ends, units in rows
    ).vcpus
    if most + number_of_hosts > limits.hosts:
        raise _quota_refusal(
            f"project {project} would hold {most + number_of_hosts} hosts at one time: the limit is {limits.hosts}"
        )


def release_bookings(connection: sa.Connection, lease: str, reservations: Sequence[str] | None = None) -> None:
    """Deletes the bookings of a lease, or of some of its reservations, with their allocations."""
    over = [row.reservation for row in capacity.lock_bookings_of_lease(connection, lease)]
    if gone := [each for each in over if reservations is None or each in reservations]:
        connection.execute(_DELETE_ALLOCATIONS, {"these": gone})
        connection.execute(_DELETE_BOOKINGS, {"these": gone})


def _no_room_refusal(connection: sa.Connection, wish: HostSearch, least: int, found: int) -> Refused:
    what = "hosts" if wish.whole else "instances"
    fitting = capacity.count_matching_hosts(connection, wish)
    asked = f" with {parse_condition(wish.wants)}" if wish.wants else ""
    if wish.affinity is not None:
        asked += ", all on one host" if wish.affinity else ", each on another host"
    hosts = connection.execute(_COUNT_HOSTS, {"of_pool": wish.pool}).scalar_one()
    if not hosts:
        raise Refused(Category.NOT_FOUND, f"pool {wish.pool} has no hosts", f"add one: starter host add {wish.pool}/h1")
    if wish.whole and fitting < least:
        return Refused(
            Category.QUOTA,
            f"not enough hosts: {least} wanted, room for {found} in pool {wish.pool}: "
            f"the pool has {format_count(fitting, 'working host')}{asked}",
            f"ask for fewer, or add one: starter host add {wish.pool}/h{hosts + 1}",
        )
    return Refused(
        Category.QUOTA,
        f"not enough {what}: {least} wanted, room for {found} in pool {wish.pool} from {format_date(wish.starts)} to "
        f"{format_date(wish.ends)}; the pool has {format_count(fitting, 'working host')}{asked}",
        f"see who holds what: starter lease calendar --pool {wish.pool}",
    )


def _quota_refusal(message: str) -> Refused:
    return Refused(Category.QUOTA, message, "end or delete a lease of the project, or ask for a higher limit")
