"""What of this family may be called from outside, and by which right (`domain/exposure.py`)."""

from __future__ import annotations

from domain.exposure import INTERNAL, Exposures

# fmt: off
ACTIVITIES: Exposures = {
    "operate_object": INTERNAL,
    "settle_object":  INTERNAL,
    "machines_on":    INTERNAL,
    "bin_due":        INTERNAL,
    "wake_bin":       INTERNAL,
}
MESSAGES: Exposures = {}
# fmt: on
