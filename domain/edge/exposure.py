"""What of this family may be called from outside, and by which right (`domain/exposure.py`)."""

from __future__ import annotations

from domain.exposure import INTERNAL, LOCAL, NUDGE, PUBLIC, TOKEN, Exposures, requires_verb

# fmt: off
ACTIVITIES: Exposures = {
    "crm_late":       requires_verb("respond"),  # an answer that no action awaits, to be kept as ignored
    "crm_send":       INTERNAL,
    "crm_probe":      INTERNAL,
    "crm_everything": INTERNAL,
    "crm_connected":  LOCAL,
    "crm_answered":   LOCAL,
    "crm_lost":       LOCAL,
    "crm_rejoined":   LOCAL,
    "crm_ignored":    LOCAL,
    "crm_hand_in":    INTERNAL,
    "failover_plan":  LOCAL,
    "policy_kept":    LOCAL,
    "policy_facts":   LOCAL,
}
MESSAGES: Exposures = {
    "crm_connect":     TOKEN,
    "crm_disconnect":  TOKEN,
    "crm_response":    TOKEN,
    "hear":            TOKEN,  # a message of the link, in an update: the proof in it is checked
    "reconnected":     NUDGE,  # with a token, the store is asked whether it is so
    "connection_lost": INTERNAL,  # from the link
    "policy_changed":  NUDGE,
    "demand":          requires_verb("demand"),  # numbers that a policy acts on
    "state":           PUBLIC,  # notify-ids, which a CRM needs in order to connect
    "memory":          PUBLIC,  # what a policy counted; no name of anybody
}
# fmt: on
