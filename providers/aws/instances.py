"""An EC2 instance, and the next step of an order by the instance's state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from domain.ports import VmFacts, VmState
from providers.aws import tags

# fmt: off
VM_STATE_OF: dict[str, VmState] = {
    "pending":       VmState.PENDING,
    "running":       VmState.RUNNING,
    "stopping":      VmState.STOPPING,
    "stopped":       VmState.STOPPED,
    "shutting-down": VmState.TERMINATING,
    "terminated":    VmState.TERMINATED,
}


class NextStep(StrEnum):
    """What to do next about an order: send it, wait, report it done, or refuse it."""

    ORDER = "order"  # send the order
    WAIT = "wait"    # in transition, or not ready for the order
    DONE = "done"    # in the goal state
    REFUSE = "refuse"


# EC2 refuses to stop a starting and to start a stopping instance, so these wait.
_NEXT_STEP_OF: dict[tuple[str, VmState], NextStep] = {
    ("create",    VmState.PENDING):     NextStep.WAIT,
    ("create",    VmState.RUNNING):     NextStep.DONE,
    ("create",    VmState.STOPPING):    NextStep.WAIT,   # created before, and stopped since: adopted as it is
    ("create",    VmState.STOPPED):     NextStep.DONE,
    ("create",    VmState.TERMINATING): NextStep.WAIT,
    ("create",    VmState.TERMINATED):  NextStep.DONE,
    ("suspend",   VmState.PENDING):     NextStep.WAIT,
    ("suspend",   VmState.RUNNING):     NextStep.ORDER,
    ("suspend",   VmState.STOPPING):    NextStep.WAIT,
    ("suspend",   VmState.STOPPED):     NextStep.DONE,
    ("resume",    VmState.PENDING):     NextStep.WAIT,
    ("resume",    VmState.RUNNING):     NextStep.DONE,
    ("resume",    VmState.STOPPING):    NextStep.WAIT,
    ("resume",    VmState.STOPPED):     NextStep.ORDER,
    ("reboot",    VmState.PENDING):     NextStep.WAIT,
    ("reboot",    VmState.RUNNING):     NextStep.ORDER,
    ("terminate", VmState.PENDING):     NextStep.ORDER,
    ("terminate", VmState.RUNNING):     NextStep.ORDER,
    ("terminate", VmState.STOPPING):    NextStep.ORDER,
    ("terminate", VmState.STOPPED):     NextStep.ORDER,
    ("terminate", VmState.TERMINATING): NextStep.WAIT,
    ("terminate", VmState.TERMINATED):  NextStep.DONE,
}

OPERATION_OF_VERB = {
    "suspend":   "stop_instances",
    "resume":    "start_instances",
    "reboot":    "reboot_instances",
    "terminate": "terminate_instances",
}
# fmt: on
VERBS = ("create", *OPERATION_OF_VERB)


def next_step(verb: str, state: VmState) -> NextStep:
    """Returns the next step of an order. An unknown state is waited for, as it may lead to a known one."""
    return NextStep.WAIT if state is VmState.UNKNOWN else _NEXT_STEP_OF.get((verb, state), NextStep.REFUSE)


@dataclass(frozen=True, slots=True)
class Instance:
    """The fields of an EC2 instance that we use."""

    cloud_id: str
    state: VmState
    address: str
    path: str  # by its tag
    token: str  # by its tag
    reason: str  # why it is in its state, if EC2 says so
    epoch: int  # by its tag: the last action that ordered something of it
    launched: datetime | None

    def facts(self, path: str = "") -> VmFacts:
        return VmFacts(path or self.path, self.cloud_id, self.state, self.address, self.token, self.launched)


def parse_instance(described: dict[str, Any], public: bool) -> Instance:
    """Converts an element of `describe_instances`. A stopped VM has no public address; it gets another at its start."""
    tagged = tags.parse_tags(described)
    return Instance(
        cloud_id=described["InstanceId"],
        state=VM_STATE_OF.get(described["State"]["Name"], VmState.UNKNOWN),
        address=described.get("PublicIpAddress" if public else "PrivateIpAddress") or "",
        path=tagged.get(tags.PATH_TAG, ""),
        token=tagged.get(tags.TOKEN_TAG, ""),
        reason=str((described.get("StateReason") or {}).get("Message", "")),
        epoch=int(said) if (said := tagged.get(tags.EPOCH_TAG, "")).isdecimal() else 0,
        launched=described.get("LaunchTime"),
    )
