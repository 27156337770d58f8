"""An instance as EC2 describes it, and what may be ordered of it in which state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.ports import VmFacts, VmState
from providers.aws import tags

# fmt: off
STATES: dict[str, VmState] = {
    "pending":       VmState.PENDING,
    "running":       VmState.RUNNING,
    "stopping":      VmState.STOPPING,
    "stopped":       VmState.STOPPED,
    "shutting-down": VmState.TERMINATING,
    "terminated":    VmState.TERMINATED,
}


class NextStep(StrEnum):
    """What to do about an instance next."""

    ORDER = "order"  # tell EC2 now
    WAIT = "wait"    # it is on its way, or not yet able to be told
    DONE = "done"    # it is what it should be
    REFUSE = "refuse"


# EC2 refuses to stop what is still starting and to start what is still stopping: these are waited for.
_STEPS: dict[tuple[str, VmState], NextStep] = {
    ("create",    VmState.PENDING):     NextStep.WAIT,
    ("create",    VmState.RUNNING):     NextStep.DONE,
    ("create",    VmState.STOPPING):    NextStep.WAIT,   # made before, and stopped since: adopted as it is
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

OPERATIONS = {
    "suspend":   "stop_instances",
    "resume":    "start_instances",
    "reboot":    "reboot_instances",
    "terminate": "terminate_instances",
}
# fmt: on
VERBS = ("create", *OPERATIONS)


def step(verb: str, state: VmState) -> NextStep:
    """What to do next. A state that nobody knows is waited for: it may be on the way to one that we know."""
    return NextStep.WAIT if state is VmState.UNKNOWN else _STEPS.get((verb, state), NextStep.REFUSE)


@dataclass(frozen=True, slots=True)
class Instance:
    """The part of EC2's description of an instance that we use."""

    cloud_id: str
    state: VmState
    address: str
    path: str  # by its tag
    token: str  # by its tag
    reason: str  # why it is in its state, if EC2 says so
    epoch: int  # by its tag: the last action that ordered something of it

    def facts(self, path: str = "") -> VmFacts:
        return VmFacts(path or self.path, self.cloud_id, self.state, self.address)


def read(described: dict[str, Any], public: bool) -> Instance:
    """One element of `describe_instances`. A stopped VM has no public address; it gets another when it starts."""
    tagged = tags.read(described)
    return Instance(
        cloud_id=described["InstanceId"],
        state=STATES.get(described["State"]["Name"], VmState.UNKNOWN),
        address=described.get("PublicIpAddress" if public else "PrivateIpAddress") or "",
        path=tagged.get(tags.PATH, ""),
        token=tagged.get(tags.TOKEN, ""),
        reason=str((described.get("StateReason") or {}).get("Message", "")),
        epoch=int(said) if (said := tagged.get(tags.EPOCH, "")).isdecimal() else 0,
    )
