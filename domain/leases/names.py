"""Names of this family that cross the wire."""

from __future__ import annotations

from domain.wire import companion

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
TRY_HAND_OVER = "lease_try_hand_over"
HAND_OVER = "lease_hand_over"
DUE_EVENTS = "lease_due_events"
FIRE_EVENTS = "lease_fire_events"
WAKE_CLOCK = "lease_wake_clock"
READ_LEASE = "read_lease"
READ_LEASES = "read_leases"
READ_CALENDAR = "read_calendar"

LOOK_AGAIN = "look_again"  # the clock's signal: something may be due earlier than it believes


def clock_id(pool: str) -> str:
    """The workflow that fires the events of all leases of a pool."""
    return companion(f"pool:{pool}", "clock")


def event_path(lease: str, name: str) -> str:
    """An event is an object below its lease, by one of the names in `tables.EVENTS`."""
    return f"{lease}:event:{name}"


def reservation_path(lease: str, number: int) -> str:
    """Reservations are numbered from 1 in the order of the request."""
    return f"{lease}:reservation:r{number}"
