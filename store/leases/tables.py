"""The leases family's tables: capacity of hosts, bookings, allocations, and timers of coming events.

Leases, reservations, events and hosts are ordinary objects; these tables hold what is searched by time.
"""

from __future__ import annotations

import sqlalchemy as sa

from store.schema import Json, Moment, Number, PathText, metadata

hosts = sa.Table(
    "lease_hosts",
    metadata,
    sa.Column("host", PathText, primary_key=True),
    sa.Column("pool", sa.String, nullable=False),
    sa.Column("profile", sa.String, nullable=False),  # its properties as JSON text; few differ, so matching is cheap
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("disk_gb", sa.Integer, nullable=False),
    sa.Column("working", sa.Boolean, nullable=False),
    sa.Index("lease_hosts_of_pool", "pool", "profile", "host"),
)

# One line per reservation that has not ended.
bookings = sa.Table(
    "lease_bookings",
    metadata,
    sa.Column("reservation", PathText, primary_key=True),
    sa.Column("lease", PathText, nullable=False),
    sa.Column("project", sa.String, nullable=False),
    sa.Column("pool", sa.String, nullable=False),
    sa.Column("token", sa.String, nullable=False),  # identifies the reservation for the hand-over
    sa.Column("version", sa.Integer, nullable=False),  # raised by every change of what it should hold
    sa.Column("starts", Moment, nullable=False),
    sa.Column("ends", Moment, nullable=False),
    sa.Column("units", sa.Integer, nullable=False),  # booked units; 0: takes nothing from the pool
    sa.Column("whole", sa.Boolean, nullable=False),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("disk_gb", sa.Integer, nullable=False),
    sa.Column("wants", Json, nullable=False),
    sa.Column("began_with", Json),  # the hosts at its start
    sa.Column("closing", sa.Boolean, nullable=False),  # hosts are being taken back; none is handed over any more
    sa.Index("lease_bookings_of_lease", "lease"),
    sa.Index("lease_bookings_of_project", "project", "ends", "starts", "units", "lease"),
    sa.Index("lease_bookings_of_pool", "pool", "ends"),
)

# A host, or a part of it, allocated to a reservation for a period [starts, ends).
allocations = sa.Table(
    "lease_allocations",
    metadata,
    sa.Column("id", Number, primary_key=True, autoincrement=True),
    sa.Column("host", PathText, nullable=False),
    sa.Column("ends", Moment, nullable=False),
    sa.Column("starts", Moment, nullable=False),
    sa.Column("reservation", PathText, nullable=False),
    sa.Column("lease", PathText, nullable=False),
    sa.Column("units", sa.Integer, nullable=False),
    sa.Column("whole", sa.Boolean, nullable=False),
    sa.Column("vcpus", sa.Integer, nullable=False),  # of all units together
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("disk_gb", sa.Integer, nullable=False),
    sa.Column("phase", sa.String, nullable=False),  # held; joining, leaving or returning during an update
    sa.Index("lease_allocations_of_host", "host", "ends", "starts"),
    sa.Index("lease_allocations_of_lease", "lease"),
    sa.Index("lease_allocations_of_reservation", "reservation"),
)

# Events that are still to come, or under way.
timers = sa.Table(
    "lease_timers",
    metadata,
    sa.Column("event", PathText, primary_key=True),
    sa.Column("lease", PathText, nullable=False),
    sa.Column("pool", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("due", Moment, nullable=False),
    sa.Index("lease_timers_of_pool", "pool", "due"),
    sa.Index("lease_timers_of_lease", "lease"),
)
