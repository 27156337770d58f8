"""One Ironic node as a lease sees it, and the next step towards what it should be. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import NAMESPACE_URL, uuid5

FIELDS = (
    *("uuid", "name", "provision_state", "maintenance", "maintenance_reason"),
    *("lessee", "instance_uuid", "extra", "last_error"),
)
EXTRA_KEY = "ratchet"


@dataclass(frozen=True)
class IronicNode:
    """A node. Its lessee is the token of the reservation that holds it, or was the last one to hold it."""

    name: str
    state: str
    lessee: str
    instance: str
    maintenance: bool
    error: str
    mark: Mapping[str, Any]  # our own entry in its `extra`: host, reservation, generation, tries
    uuid: str = ""

    @classmethod
    def from_api(cls, node: Mapping[str, Any]) -> IronicNode:
        return cls(
            name=str(node["name"] or node["uuid"]),
            state=str(node["provision_state"] or "available"),
            lessee=str(node["lessee"] or ""),
            instance=str(node["instance_uuid"] or ""),
            maintenance=bool(node["maintenance"]),
            error=str(node["last_error"] or node["maintenance_reason"] or ""),
            mark=(node["extra"] or {}).get(EXTRA_KEY) or {},
            uuid=str(node["uuid"]),
        )

    @property
    def is_held(self) -> bool:
        """Tells whether a reservation of ours has it: until Ironic has undeployed and cleaned it."""
        return bool(self.lessee and self.mark) and not self.is_free

    @property
    def is_free(self) -> bool:
        """Tells whether anybody may claim it. Its instance is the claim, and Ironic takes that away as it undeploys."""
        return self.state == "available" and not self.instance


class NodeStep(StrEnum):
    """What to do with a node next."""

    NOTHING = "nothing"
    CLAIM = "claim"  # then deploy
    DEPLOY = "deploy"
    DEPLOY_AGAIN = "deploy again"
    UNDEPLOY = "undeploy"  # Ironic cleans it after that
    RELEASE = "release"  # it is nobody's any more
    WAIT = "wait"  # Ironic is at work
    BROKEN = "broken"  # a person must look at it
    TAKEN = "taken"  # it is somebody else's


_AT_WORK = ("deploying", "wait call-back", "deleting", "cleaning", "clean wait", "rebuilding")


def next_step_to_hold(node: IronicNode, token: str) -> NodeStep:
    """Returns the next step of a node that a reservation should hold."""
    ours = node.lessee == token
    if node.instance and not ours:
        return NodeStep.TAKEN
    if node.maintenance:
        return NodeStep.BROKEN
    if node.state in _AT_WORK:
        return NodeStep.WAIT
    match node.state:
        case "available":
            return NodeStep.DEPLOY if ours and node.instance else NodeStep.CLAIM
        case "active":
            return NodeStep.NOTHING if ours else NodeStep.TAKEN
        case "deploy failed":
            # What another tenant left on it is cleaned first.
            return NodeStep.DEPLOY_AGAIN if ours and node.instance else NodeStep.UNDEPLOY
        case _:
            return NodeStep.BROKEN


def next_step_to_return(node: IronicNode) -> NodeStep:
    """Returns the next step of a node that its reservation should no longer hold."""
    if node.is_free:
        return NodeStep.NOTHING  # what it says of its last tenant is replaced by the next claim: that saves a call
    if node.maintenance:
        return NodeStep.RELEASE  # Ironic does nothing with it until a person has repaired it
    if node.state in ("active", "deploy failed", "error"):
        return NodeStep.UNDEPLOY
    return NodeStep.WAIT if node.state in _AT_WORK else NodeStep.RELEASE


def claim_uuid_for_node(token: str, node: str) -> str:
    """Returns the instance UUID by which a reservation claims a node; Ironic lets a node have one at a time."""
    return str(uuid5(NAMESPACE_URL, f"ratchet:{token}:{node}"))
