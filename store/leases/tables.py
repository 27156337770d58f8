"""The leases family's tables: capacity of hosts, bookings, allocations, and timers of coming events.

Leases, reservations, events and hosts are ordinary objects; these tables hold what is searched by time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from domain.leases.specs import LeaseTerm
from store.schema import Count, Path, define_index, define_table


class HostRow(NamedTuple):
    """A host as capacity."""

    host: Path
    pool: str
    vcpus: Count
    memory_mb: Count
    disk_gb: Count
    working: bool


hosts = define_table("lease_hosts", HostRow, ("host",), define_index("lease_hosts_of_pool", "pool", "host"))


class PropertyRow(NamedTuple):
    """A property of a host: its value as text, and as a number if it is one."""

    host: Path
    name: str
    value: Path  # compared by bytes, as paths are
    number: float | None


properties = define_table("lease_properties", PropertyRow, ("host", "name"))


class PrivatePropertyRow(NamedTuple):
    """A property that only those see who may update the pool's hosts. It stays so without a host that has it."""

    pool: str
    name: str


private_properties = define_table("lease_private_properties", PrivatePropertyRow, ("pool", "name"))


class BookingRow(NamedTuple):
    """A reservation that has not ended."""

    reservation: Path
    lease: Path
    project: str
    pool: str
    token: str  # identifies the reservation for the hand-over
    version: Count  # raised by every change of what it should hold
    starts: datetime
    ends: datetime
    units: Count  # booked units; 0: takes nothing from the pool
    whole: bool
    vcpus: Count
    memory_mb: Count
    disk_gb: Count
    wants: list[Any]  # a property expression; empty: any host
    affinity: bool | None  # of instances: all on one host, or each on another; None: anywhere
    began_with: list[str] | None  # the hosts at its start
    closing: bool  # hosts are being taken back; none is handed over any more

    def with_term(self, dates: LeaseTerm) -> BookingRow:
        """Returns this booking with another term."""
        return self._replace(starts=dates.start, ends=dates.end)


bookings = define_table(
    "lease_bookings",
    BookingRow,
    ("reservation",),
    define_index("lease_bookings_of_lease", "lease"),
    define_index("lease_bookings_of_project", "project", "ends", "starts", "units", "lease"),
    define_index("lease_bookings_of_pool", "pool", "ends"),
)


class AllocationRow(NamedTuple):
    """A host, or a part of it, allocated to a reservation for a period [starts, ends)."""

    id: int
    host: Path
    ends: datetime
    starts: datetime
    reservation: Path
    lease: Path
    units: Count
    whole: bool
    vcpus: Count  # of all units together
    memory_mb: Count
    disk_gb: Count
    phase: str  # held; joining, leaving or returning during an update


allocations = define_table(
    "lease_allocations",
    AllocationRow,
    ("id",),
    define_index("lease_allocations_of_host", "host", "ends", "starts"),
    define_index("lease_allocations_of_lease", "lease"),
    define_index("lease_allocations_of_reservation", "reservation"),
)


class EventTimerRow(NamedTuple):
    """An event that is still to come, or under way."""

    event: Path
    lease: Path
    pool: str
    name: str
    due: datetime


timers = define_table(
    "lease_timers",
    EventTimerRow,
    ("event",),
    define_index("lease_timers_of_pool", "pool", "due"),
    define_index("lease_timers_of_lease", "lease"),
)
