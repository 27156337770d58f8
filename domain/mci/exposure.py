"""What of this family may be called from outside, and by which right (`domain/exposure.py`)."""

from __future__ import annotations

from domain.exposure import INTERNAL, LOCAL, OWN_ACTION, Exposures, relayed_with_verb, requires_verb

# fmt: off
ACTIVITIES: Exposures = {
    "plan_survey":     relayed_with_verb("reconcile"),  # a survey that only refreshes is a read
    "survey_place":    INTERNAL,
    "validate_place":  requires_verb(OWN_ACTION),  # a dry run calls it outside of a workflow, for a request
    "prepare_place":   INTERNAL,
    "release_place":   INTERNAL,
    "examine_mci":     relayed_with_verb(OWN_ACTION),
    "enrol_vms":       LOCAL,
    "adopt_vm":        LOCAL,
    "identify_orphan": INTERNAL,
    "operate_vms":     INTERNAL,
    "settle_vms":      INTERNAL,
    "forget_vms":      INTERNAL,
}
MESSAGES: Exposures = {
    "continue": requires_verb("continue"),
    "withdraw": requires_verb("withdraw"),
}
# fmt: on
