"""What of this family may be called from outside, and by which right (`domain/exposure.py`)."""

from __future__ import annotations

from domain.exposure import INTERNAL, LOCAL, READS, Exposures

# fmt: off
ACTIVITIES: Exposures = {
    "read_lease":              READS,
    "read_leases":             READS,
    "read_calendar":           READS,
    "read_private_properties": READS,
    "lease_hand_over":         INTERNAL,
    "lease_try_hand_over":     INTERNAL,
    "lease_due_events":        LOCAL,
    "lease_fire_events":       INTERNAL,
    "lease_wake_clock":        INTERNAL,
}
MESSAGES: Exposures = {}
# fmt: on
