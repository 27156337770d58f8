"""The family's own tables: hosts as capacity, what is booked, where, and the timers of what is still to come.

Leases, reservations, events and hosts are objects like all others; these tables hold what must be searched by time.
"""

from __future__ import annotations

import sqlalchemy as sa

from store.schema import Json, Moment, Number, PathText, metadata

hosts = sa.Table(
    "lease_hosts",
    metadata,
    sa.Column("host", PathText, primary_key=True),
    sa.Column("pool", sa.String, nullable=False),
    sa.Column("profile", sa.String, nullable=False),  # its properties as one text: few differ, so matching is cheap
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
    sa.Column("token", sa.String, nullable=False),  # the reservation and its generation, for whoever hands over
    sa.Column("version", sa.Integer, nullable=False),  # rises with every change of what it should hold
    sa.Column("starts", Moment, nullable=False),
    sa.Column("ends", Moment, nullable=False),
    sa.Column("units", sa.Integer, nullable=False),  # what it was promised; 0: it takes nothing from the pool
    sa.Column("whole", sa.Boolean, nullable=False),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("disk_gb", sa.Integer, nullable=False),
    sa.Column("wants", Json, nullable=False),
    sa.Column("began_with", Json),  # the hosts at its start
    sa.Column("closing", sa.Boolean, nullable=False),  # everything is being taken back: nothing is handed over any more
    sa.Index("lease_bookings_of_lease", "lease"),
    sa.Index("lease_bookings_of_project", "project", "ends", "starts", "units", "lease"),
    sa.Index("lease_bookings_of_pool", "pool", "ends"),
)

# Which host, or part of it, is whose, from when until just before when.
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
    sa.Column("phase", sa.String, nullable=False),  # held; joining, leaving or returning while its lease is updated
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
