"""Names of the lease family that cross the wire. Recorded histories contain them, so they must not change."""

from __future__ import annotations

from domain.paths import name_of, parent_of, short_path
from domain.wire import companion_id

# Workflow types.
CREATE_LEASE = "CreateLease"
UPDATE_LEASE = "UpdateLease"
START_LEASE = "StartLease"
END_LEASE = "EndLease"
DELETE_LEASE = "DeleteLease"
ANNOUNCE_END = "AnnounceEnd"
CHANGE_HOST = "ChangeHost"
LEASE_CLOCK = "LeaseClock"

# Activities.
READ_LEASE = "read_lease"
READ_LEASES = "read_leases"
READ_CALENDAR = "read_calendar"
READ_PRIVATE_PROPERTIES = "read_private_properties"


def pool_clock_id(pool: str) -> str:
    """Returns the workflow ID of a pool's clock, which fires the events of all its leases."""
    return companion_id(f"pool:{pool}", "clock")


def event_path(lease: str, name: str) -> str:
    """Returns the path of a lease's event; `name` is one of `tables.EVENTS`."""
    return f"{lease}:event:{name}"


def reservation_path(lease: str, number: int) -> str:
    """Returns the path of a lease's reservation; they are numbered from 1 in the order of the request."""
    return f"{lease}:reservation:r{number}"


def describe_reservation(path: str) -> str:
    """Returns a reservation with its lease, for messages: `r1 of p1/demo`."""
    return f"{name_of(path)} of {short_path(parent_of(path) or '')}"
