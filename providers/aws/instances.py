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


class Step(StrEnum):
    """What to do about an instance next."""

    ORDER = "order"  # tell EC2 now
    WAIT = "wait"    # it is on its way, or not yet able to be told
    DONE = "done"    # it is what it should be
    REFUSE = "refuse"


# EC2 refuses to stop what is still starting and to start what is still stopping: these are waited for.
_STEPS: dict[tuple[str, VmState], Step] = {
    ("create",    VmState.PENDING):     Step.WAIT,
    ("create",    VmState.RUNNING):     Step.DONE,
    ("create",    VmState.STOPPING):    Step.WAIT,   # made before, and stopped since: adopted as it is
    ("create",    VmState.STOPPED):     Step.DONE,
    ("create",    VmState.TERMINATING): Step.WAIT,
    ("create",    VmState.TERMINATED):  Step.DONE,
    ("suspend",   VmState.PENDING):     Step.WAIT,
    ("suspend",   VmState.RUNNING):     Step.ORDER,
    ("suspend",   VmState.STOPPING):    Step.WAIT,
    ("suspend",   VmState.STOPPED):     Step.DONE,
    ("resume",    VmState.PENDING):     Step.WAIT,
    ("resume",    VmState.RUNNING):     Step.DONE,
    ("resume",    VmState.STOPPING):    Step.WAIT,
    ("resume",    VmState.STOPPED):     Step.ORDER,
    ("reboot",    VmState.PENDING):     Step.WAIT,
    ("reboot",    VmState.RUNNING):     Step.ORDER,
    ("terminate", VmState.PENDING):     Step.ORDER,
    ("terminate", VmState.RUNNING):     Step.ORDER,
    ("terminate", VmState.STOPPING):    Step.ORDER,
    ("terminate", VmState.STOPPED):     Step.ORDER,
    ("terminate", VmState.TERMINATING): Step.WAIT,
    ("terminate", VmState.TERMINATED):  Step.DONE,
}

OPERATIONS = {
    "suspend":   "stop_instances",
    "resume":    "start_instances",
    "reboot":    "reboot_instances",
    "terminate": "terminate_instances",
}
# fmt: on
VERBS = ("create", *OPERATIONS)


def step(verb: str, state: VmState) -> Step:
    """What to do next. A state that nobody knows is waited for: it may be on the way to one that we know."""
    return Step.WAIT if state is VmState.UNKNOWN else _STEPS.get((verb, state), Step.REFUSE)


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
