"""What may be called from outside, and by which right: every activity, and every message that a workflow handles.

Whoever may write to the Temporal namespace can call any activity by its name and send any message. So each is listed,
here or in its family; what is listed nowhere is closed, and a test fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

READ = "read"  # every role has it for its kinds and paths
CANCEL = "cancel"
PROMOTE = "promote"
OWN_ACTION = "its action"  # the verb is the action that the request names


class CallAccess(StrEnum):
    """The ways in which an activity or a message is open."""

    PUBLIC = "public"  # it tells nothing about anybody's objects
    JUDGED = "judged"  # the authorizer is asked
    RELAYED = "relayed"  # only a workflow of ours calls it, with what somebody else asked for: judged too
    TOKEN = "token"  # noqa: S105 - it has a proof of its own: a cloudlet's token, an OIDC token
    NUDGE = "nudge"  # it makes its receiver look again; what it says is not believed
    INTERNAL = "internal"  # only from a workflow of ours
    LOCAL = "local"  # only from a workflow of ours, in the worker that runs it: it never comes over a queue


@dataclass(frozen=True)
class Exposure:
    """How something is open, and the verb that the authorizer is asked for."""

    access: CallAccess
    verb: str = ""


PUBLIC = Exposure(CallAccess.PUBLIC)
READS = Exposure(CallAccess.JUDGED, READ)
TOKEN = Exposure(CallAccess.TOKEN)
NUDGE = Exposure(CallAccess.NUDGE)
INTERNAL = Exposure(CallAccess.INTERNAL)
LOCAL = Exposure(CallAccess.LOCAL)
Exposures = dict[str, Exposure]


def requires_verb(verb: str) -> Exposure:
    """Makes an exposure: outsiders may call it if the policy gives them this verb."""
    return Exposure(CallAccess.JUDGED, verb)


def relayed_with_verb(verb: str) -> Exposure:
    """Makes an exposure: only our workflows call it, for somebody whom the policy must give this verb."""
    return Exposure(CallAccess.RELAYED, verb)


# fmt: off
KERNEL_ACTIVITIES: Exposures = {
    "read_object":          READS,
    "read_objects":         READS,
    "read_tree":            READS,
    "read_outcome":         READS,
    "read_action":          READS,
    "read_history":         READS,
    "read_locks":           READS,
    "read_events":          READS,
    "read_aliases":         READS,
    "read_reports":         READS,
    "read_orphans":         READS,
    "read_quotas":          READS,
    "read_newest_position": PUBLIC,  # a number
    "read_store":           PUBLIC,  # which store and schema: `doctor` compares workers
    "read_connections":     PUBLIC,  # names, regions, and whether credentials are good
    "read_access":          PUBLIC,  # who the sender is, and what it may do
    "login":                TOKEN,
    "read_check":           requires_verb(OWN_ACTION),
    "make_way":             requires_verb(OWN_ACTION),
    "cancel_action":        requires_verb(CANCEL),
    "promote_build":        requires_verb(PROMOTE),
    "verify":               requires_verb("verify"),
    "cloud_faults":         requires_verb("inject"),
    "sweep":                relayed_with_verb("heal"),
    "close_line":           relayed_with_verb("drain"),
    "open_line":            LOCAL,
    "permit":               LOCAL,  # it judges what it is given
    "permit_message":       LOCAL,  # the same
    "permit_messages":      LOCAL,  # the same
    "begin":                LOCAL,  # it judges the request in its transaction
    "advance":              LOCAL,
    "finish":               LOCAL,
    "has_ended":            LOCAL,
    "still_held":           LOCAL,
    "heal_holders":         INTERNAL,
    "remove_orphan":        INTERNAL,
    "order_object":         INTERNAL,
    "settle_ordered":       INTERNAL,
}
KERNEL_MESSAGES: Exposures = {  # signals, updates and queries
    "admit":      requires_verb(OWN_ACTION),  # answered only for the very request that begin judged
    "preempt":    requires_verb(OWN_ACTION),
    "progress":   PUBLIC,  # phase and counts; whoever may query may read the history of the workflow
    "passed":     NUDGE,
    "look_again": NUDGE,
}
# fmt: on
