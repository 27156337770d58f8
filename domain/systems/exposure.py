"""What of this family may be called from outside, and by which right (`domain/exposure.py`)."""

from __future__ import annotations

from domain.exposure import INTERNAL, LOCAL, OWN_ACTION, READS, Exposures, requires_verb

# fmt: off
ACTIVITIES: Exposures = {
    "read_services":     READS,
    "read_definition":   READS,
    "read_service_logs": READS,
    "read_objections": requires_verb(OWN_ACTION),
    "accept_deploy":  LOCAL,
    "accept_removal": LOCAL,
    "revert_deploy":  LOCAL,
    "prepare_system": INTERNAL,
    "roll_out":       INTERNAL,
    "assess_parts":   INTERNAL,
    "settle_parts":   INTERNAL,
    "remove_parts":   INTERNAL,
    "settle_removal": INTERNAL,
}
MESSAGES: Exposures = {}
# fmt: on
