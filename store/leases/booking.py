"""Booking: allocates hosts to the reservations of a lease for its whole term, or refuses the request."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.leases.capacity import Allocation, Size, peak
from domain.leases.dates import stamp
from domain.leases.specs import Instances, LeaseLimits, LeaseTerm, MciLease, PhysicalHosts
from domain.paths import parent_of
from store.leases import capacity
from store.leases.capacity import RoomRequest
from store.leases.tables import BookingRow, allocations, bookings

NOTHING = Size(0, 0, 0)

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
# By a list: with a subquery, PostgreSQL reads the whole table.
_FREED = sa.delete(allocations).where(allocations.c.reservation.in_(sa.bindparam("these", expanding=True)))
_FORGOTTEN = sa.delete(bookings).where(bookings.c.reservation.in_(sa.bindparam("these", expanding=True)))

ReservationSpecs = PhysicalHosts | Instances | MciLease


def book(
    connection: sa.Connection, reservation: str, run: str, pool: str, wanted: ReservationSpecs, dates: LeaseTerm
) -> None:
    """Books one reservation of a new lease, with its allocations."""
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
        whole=isinstance(wanted, PhysicalHosts),
        **capacity.columns(_size(wanted)),
        wants={} if isinstance(wanted, MciLease) else wanted.resource_properties,
        began_with=None,
        closing=False,
    )
    places: dict[str, int] = {}
    if not isinstance(wanted, MciLease):
        places = place(connection, booking, wanted.min, wanted.most)
    connection.execute(_BOOK, booking._replace(units=sum(places.values()))._asdict())
    capacity.take(connection, booking, places)


def place(
    connection: sa.Connection, booking: BookingRow, least: int, most: int, prefer: Sequence[str] = ()
) -> dict[str, int]:
    """Finds room for `least` to `most` units, as host -> units. Refuses with the numbers if there is less."""
    wish = room_request(booking, most)
    places = capacity.find(connection, wish, prefer)
    if (found := sum(places.values())) < least:
        raise _not_enough(connection, wish, least, found)
    return places


def room_request(booking: BookingRow, units: int) -> RoomRequest:
    """Builds the search for hosts from a booking."""
    return RoomRequest(
        pool=booking.pool,
        starts=booking.starts,
        ends=booking.ends,
        units=units,
        whole=booking.whole,
        size=capacity.size_of(booking),
        wants=booking.wants,
    )


def check_quota(connection: sa.Connection, lease: str, dates: LeaseTerm, hosts: int, limits: LeaseLimits) -> None:
    """Refuses if the project would exceed its limit of leases, or of hosts at one time."""
    project = lease.split(":")[1]
    others = {"of_project": project, "but": lease}
    leases = connection.execute(_LEASES, others).scalar_one()
    if leases >= limits.leases:
        raise _over(f"project {project} has {leases} leases: the limit is {limits.leases}")
    within = others | {"since": dates.start, "until": dates.end}
    at_most = connection.execute(_HOSTS, within).scalar_one() or 0
    if at_most + hosts <= limits.hosts:
        return  # within the limit even if all of them overlap
    rows = connection.execute(_EACH, within).all()
    most = peak(Allocation(max(dates.start, starts), ends, Size(units, 0, 0)) for starts, ends, units in rows).vcpus
    if most + hosts > limits.hosts:
        raise _over(f"project {project} would hold {most + hosts} hosts at one time: the limit is {limits.hosts}")


def release(connection: sa.Connection, lease: str, reservations: Sequence[str] | None = None) -> None:
    """Deletes the bookings of a lease, or of some of its reservations, with their allocations."""
    over = [row.reservation for row in capacity.locked(connection, lease)]
    if gone := [each for each in over if reservations is None or each in reservations]:
        connection.execute(_FREED, {"these": gone})
        connection.execute(_FORGOTTEN, {"these": gone})


def _size(wanted: ReservationSpecs) -> Size:
    return Size(wanted.vcpus, wanted.memory_mb, wanted.disk_gb) if isinstance(wanted, Instances) else NOTHING


def _not_enough(connection: sa.Connection, wish: RoomRequest, least: int, found: int) -> Refused:
    what = "hosts" if wish.whole else "instances"
    fitting = capacity.count(connection, wish)
    asked = f" with {', '.join(f'{name} {value}' for name, value in wish.wants.items())}" if wish.wants else ""
    return Refused(
        Category.QUOTA,
        f"not enough {what}: {least} wanted, room for {found} in pool {wish.pool} from {stamp(wish.starts)} to "
        f"{stamp(wish.ends)}; the pool has {fitting} working hosts{asked}",
        f"see who holds what: starter lease calendar --pool {wish.pool}",
    )


def _over(message: str) -> Refused:
    return Refused(Category.QUOTA, message, "end or delete a lease of the project, or ask for a higher limit")
