"""An EC2 instance, and the operation of each verb."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from domain.ports import VmFacts, VmState
from providers.aws import tags
from providers.aws.errors import NO_CAPACITY_CODES

# fmt: off
VM_STATE_OF: dict[str, VmState] = {
    "pending":       VmState.PENDING,
    "running":       VmState.RUNNING,
    "stopping":      VmState.STOPPING,
    "stopped":       VmState.STOPPED,
    "shutting-down": VmState.TERMINATING,
    "terminated":    VmState.TERMINATED,
}

OPERATION_OF_VERB = {
    "suspend":   "stop_instances",
    "resume":    "start_instances",
    "reboot":    "reboot_instances",
    "terminate": "terminate_instances",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Ec2Instance:
    """The fields of an EC2 instance that we use."""

    cloud_id: str
    state: VmState
    address: str
    path: str  # by its tag
    token: str  # by its tag
    reason: str  # why it is in its state, if EC2 says so
    epoch: int  # by its tag: the last action that ordered something of it
    launched: datetime | None

    @property
    def lacked_capacity(self) -> bool:
        return self.reason.partition(":")[0] in NO_CAPACITY_CODES

    def to_vm_facts(self, path: str = "") -> VmFacts:
        return VmFacts(path or self.path, self.cloud_id, self.state, self.address, self.token, self.launched)


def parse_instance(described: dict[str, Any], public: bool) -> Ec2Instance:
    """Converts an element of `describe_instances`. A stopped VM has no public address; it gets another at its start."""
    tagged = tags.parse_tags(described)
    return Ec2Instance(
        cloud_id=described["InstanceId"],
        state=VM_STATE_OF.get(described["State"]["Name"], VmState.UNKNOWN),
        address=described.get("PublicIpAddress" if public else "PrivateIpAddress") or "",
        path=tagged.get(tags.PATH_TAG, ""),
        token=tagged.get(tags.TOKEN_TAG, ""),
        reason=str((described.get("StateReason") or {}).get("Message", "")),
        epoch=int(said) if (said := tagged.get(tags.EPOCH_TAG, "")).isdecimal() else 0,
        launched=described.get("LaunchTime"),
    )
