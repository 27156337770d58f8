"""The hypervisor: its protocol, and the table of its states, which every implementation follows.

An order for a state that already holds succeeds without effect, so that a retried action continues where the first
attempt stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from domain.machines.tables import S
from domain.nodecalls import NodeAnswer, NodeTask
from domain.statetable import NONE

ABSENT = "absent"  # never made, or destroyed

# fmt: off
# kind -> verb -> state before -> state after
STATE_AFTER_VERB: dict[str, dict[str, dict[str, str]]] = {
    "machine": {
        "create":  {ABSENT: "running", "running": "running"},
        "start":   {"stopped": "running", "running": "running"},
        "pause":   {"running": "paused", "paused": "paused"},
        "resume":  {"paused": "running", "running": "running"},
        "stop":    {"running": "stopped", "paused": "stopped", "stopped": "stopped"},
        "reboot":  {"running": "running", "paused": "running"},
        "reset":   {"running": "running"},
        "migrate": {"running": "running", "paused": "paused", "stopped": "stopped"},
        "snapshot":        {"running": "running", "paused": "paused", "stopped": "stopped"},
        "rollback":        {"running": "running", "paused": "paused", "stopped": "stopped"},
        "delete-snapshot": {"running": "running", "paused": "paused", "stopped": "stopped"},
        "delete":  {"stopped": "binned", "binned": "binned"},
        "restore": {"binned": "stopped", "stopped": "stopped"},
        "destroy": {"binned": ABSENT, ABSENT: ABSENT},
    },
    "disk": {
        "create":  {ABSENT: "detached", "detached": "detached"},
        "attach":  {"detached": "attached"},
        "detach":  {"attached": "detached", "detached": "detached", "attached in bin": "binned", "binned": "binned"},
        "delete":  {"detached": "binned", "binned": "binned", "attached": "attached in bin",
                    "attached in bin": "attached in bin"},
        "restore": {"binned": "detached", "detached": "detached", "attached in bin": "attached",
                    "attached": "attached"},
        "destroy": {"binned": ABSENT, ABSENT: ABSENT},
    },
    "cloudspace": {
        "create":  {ABSENT: "up", "up": "up"},
        "disable": {"up": "disabled", "disabled": "disabled"},
        "enable":  {"disabled": "up", "up": "up"},
        "pause":   {"up": "paused", "paused": "paused"},
        "resume":  {"paused": "up", "up": "up"},
        "reset":   {"up": "up", "paused": "up"},
        "delete":  {"up": "binned", "disabled": "binned", "paused": "binned", "binned": "binned"},
        "restore": {"binned": "up", "up": "up"},
        "destroy": {"binned": ABSENT, ABSENT: ABSENT},
    },
    "image": {
        "create":  {ABSENT: "ready", "ready": "ready"},
        "disable": {"ready": "disabled", "disabled": "disabled"},
        "enable":  {"disabled": "ready", "ready": "ready"},
        "delete":  {"ready": "binned", "disabled": "binned", "binned": "binned"},
        "restore": {"binned": "ready", "ready": "ready"},
        "destroy": {"binned": ABSENT, ABSENT: ABSENT},
    },
    "node": {
        "create":       {ABSENT: "enabled", "enabled": "enabled"},
        "maintain":     {"enabled": "maintenance", "maintenance": "maintenance"},
        "enable":       {"maintenance": "enabled", "enabled": "enabled"},
        "decommission": {"enabled": ABSENT, "maintenance": ABSENT, ABSENT: ABSENT},
    },
    "account": {},
}

# The hypervisor state that an object in a stable status should have.
EXPECTED_STATES: dict[str, dict[str, str]] = {
    "machine":    {S.RUNNING: "running", S.PAUSED: "paused", S.HALTED: "stopped", S.DELETED: "binned"},
    "disk":       {S.CREATED: "detached", S.ASSIGNED: "attached", S.DELETED: "binned",
                   S.TOBEDELETED: "attached in bin"},
    "cloudspace": {S.DEPLOYED: "up", S.DISABLED: "disabled", S.PAUSED: "paused", S.DELETED: "binned"},
    "image":      {S.CREATED: "ready", S.DISABLED: "disabled", S.DELETED: "binned"},
    "node":       {S.ENABLED: "enabled", S.MAINTENANCE: "maintenance"},
}
# fmt: on
_ABSENT_STATUSES = (NONE, S.VIRTUAL, S.MODELED, S.DESTROYED, S.DECOMMISSIONED)


@dataclass(frozen=True, slots=True)
class HypervisorOrder:
    """One order for one object. The token gives a repeated order a single effect.

    `epoch` is the number of the ordering action. A hypervisor stores the highest one of each object, even of one that
    is absent, and refuses a lower one as Superseded: a worker that was frozen may order after a later action is done.
    """

    path: str
    kind: str
    token: str
    spec: Mapping[str, Any] = field(default_factory=dict)  # its own spec, and the order's parameters
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """A machine at a moment: its boot disk, the disks attached then, and its memory unless it was halted."""

    name: str
    memory: bool
    disks: tuple[str, ...]  # paths


@dataclass(frozen=True, slots=True)
class HypervisorFacts:
    """The hypervisor's state of one object. `node` is set for a machine, `machine` for a disk."""

    path: str
    state: str
    node: str = ""
    machine: str = ""
    epoch: int = 0  # the highest that ordered anything, if the hypervisor keeps it
    address: str = ""  # a machine's in its network, a cloudspace's to the outside
    snapshots: tuple[MachineSnapshot, ...] = ()  # of a machine, oldest first


class Hypervisor(Protocol):
    """Runs machines on nodes, with disks, networks and images."""

    async def perform_order(self, verb: str, order: HypervisorOrder) -> HypervisorFacts:
        """Carries out an order and returns when it is done. Raises a ProviderError, or Superseded for a lower epoch."""
        ...

    async def describe_object(self, path: str) -> HypervisorFacts:
        """Returns the current state of an object; ABSENT if it does not exist."""
        ...

    async def list_existing_objects(self, prefix: str, after: str) -> list[HypervisorFacts]:
        """Returns the next things that exist at or below a path, in the order of their paths."""
        ...

    async def list_machines_on(self, node: str) -> list[HypervisorFacts]:
        """Returns the machines placed on a node, running or not."""
        ...


class MultiHostHypervisor(Hypervisor, Protocol):
    """A hypervisor whose nodes are hosts: what happens on one is done by a worker there."""

    async def serve_node_order(self, task: NodeTask) -> NodeAnswer:
        """Carries out an order of another worker on a node that this worker serves."""
        ...

    async def claim_nodes(self, nodes: Sequence[str]) -> None:
        """Records that these nodes are this host. Refuses one that is another host."""
        ...


def state_expected_in_status(kind: str, status: str) -> str:
    """Returns the hypervisor state that an object in this stable status should have."""
    state = EXPECTED_STATES.get(kind, {}).get(status)
    if state is None and kind in EXPECTED_STATES and status not in _ABSENT_STATUSES:
        raise ValueError(f"{kind} under {status} may be anything")  # it must not be taken for absent
    return state or ABSENT


def verbs_to_reach(kind: str, now: str, to: str) -> tuple[str, ...] | None:
    """Returns the shortest series of orders from one state to another; None if there is none.

    It never destroys an object, unless the object should not exist at all.
    """
    seen, queue = {now}, deque[tuple[str, tuple[str, ...]]]([(now, ())])
    while queue:
        state, verbs = queue.popleft()
        if state == to:
            return verbs
        for verb, moves in STATE_AFTER_VERB.get(kind, {}).items():
            after = moves.get(state, state)
            gone_for_good = after == ABSENT and to != ABSENT
            made_anew = state == ABSENT
            if after not in seen and not gone_for_good and not made_anew:
                seen.add(after)
                queue.append((after, (*verbs, verb)))
    return None
