"""What the layers ask of each other: the inventory and the clouds, as protocols."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from domain.errors import ProviderError, Superseded
from domain.healing import HealReport, Leftover, Pruned, Suspect
from domain.invariants import AuditSnapshot
from domain.locks import HeldLock
from domain.model import (
    Admission,
    Chunk,
    Claim,
    Done,
    Ending,
    Grant,
    HistoryLine,
    Holder,
    Landing,
    ObjectView,
    Outcome,
    QueueCommand,
    Step,
    Stepped,
    Target,
    TreeView,
)

T = TypeVar("T")

# Work in the step that admits an action. It is quick, and may be done again, even when the action has ended. What it
# returns is what the action leaves (`failed`: a final no), or the grant from which the workflow goes on.
InlineWork = Callable[[Grant], Awaitable[Done | Grant]]


class Transactions(Protocol):
    """A database that runs a function of a connection as one transaction."""

    async def run(self, work: Callable[[Any], T]) -> T: ...


class Inventory(Protocol):
    """Objects, locks and history. Every method is one transaction; the writers are idempotent."""

    async def begin(self, claim: Claim) -> Admission:
        """Legal and free? Then take the locks and show the action's status; else say why not."""
        ...

    async def check(self, claim: Claim) -> Admission:
        """What begin would answer; nothing is changed."""
        ...

    async def advance(self, step: Step) -> Stepped:
        """Make moves within an action: all or none. Not made if a table forbids one, or if the action has ended."""
        ...

    async def targets(self, chunk: Chunk) -> list[Target]:
        """The targets of the chunk that are still to be done."""
        ...

    async def is_open(self, path: str, epoch: int) -> bool:
        """Is the action of this number, at or above the path, still under way? Asked just before an order."""
        ...

    async def land(self, chunk: Chunk, landings: Sequence[Landing], at: datetime) -> int:
        """Write where targets came out, in bulk. Returns how many were written; a stale epoch writes none."""
        ...

    async def finish(self, ending: Ending) -> Outcome:
        """Write the end, release the locks. A second finish of the same action gives the first one's outcome."""
        ...

    async def still_held(self, holders: Sequence[Holder]) -> list[Holder]:
        """Those of the holders that have not released their locks yet."""
        ...

    async def close_queue(self, order: QueueCommand) -> list[Holder]:
        """Let nobody else stand in line at a path. Returns those who do. Refused if the line is closed already."""
        ...

    async def open_queue(self, order: QueueCommand) -> None:
        """Take back what close_queue did."""
        ...

    async def abandon(self, owner: str, run: str, at: datetime, message: str) -> int:
        """Put right what a dead run left behind. The caller knows that it is dead. Returns objects brought back."""
        ...

    async def suspects(self, before: datetime) -> list[Suspect]:
        """Whatever has been under way since before that time: actions, locks and objects."""
        ...

    async def heal(self, suspect: Suspect, at: datetime, message: str) -> bool:
        """Put right what a dead action left. The caller knows that it is dead. False: it came to rest by itself."""
        ...

    async def leftovers(self) -> list[Leftover]:
        """What actions that did not succeed may have left outside, and nobody has removed or taken up since."""
        ...

    async def prune(
        self, before: datetime, after: int, busy: Set[str], export: Callable[[list[dict[str, Any]]], None]
    ) -> Pruned:
        """Remove a batch of what ended before that time, from the action after `after` on; `export` gets it first."""
        ...

    async def save_report(self, report: HealReport) -> HealReport: ...

    async def reports(self, limit: int) -> list[HealReport]: ...

    async def get(self, path: str, members: bool = False) -> ObjectView: ...

    async def tree(self, path: str, troubles: int) -> TreeView: ...

    async def outcome(self, run: str) -> Outcome:
        """What became of the action of a run. One that has not ended, or never began, is Refused as not found."""
        ...

    async def list_objects(self, kind: str, prefix: str, after: str, limit: int) -> list[ObjectView]: ...

    async def history(self, path: str, limit: int) -> list[HistoryLine]: ...

    async def holds(self, prefix: str) -> list[HeldLock]: ...

    async def kept(self, prefix: str) -> AuditSnapshot:
        """What is under way at or below a path, and which of the promises that the inventory can check are broken."""
        ...

    async def begun_since(self, epoch: int) -> list[str]:
        """The objects on which an action has begun after the one with this number."""
        ...


class VmState(StrEnum):
    """What a cloud can say about a VM. UNKNOWN is a word that we do not understand."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class VmOrder:
    """One VM in one provider call. The token makes a repeated call have one effect.

    `epoch` is the number of the action that orders. A cloud that can keep one for each VM refuses a lower one than it
    has seen, as Superseded: a worker that was frozen may give its order when a later action is done. 0: only a read.
    """

    path: str
    token: str
    cloud_id: str = ""
    spec: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class VmFacts:
    """What the cloud says about one VM."""

    path: str
    cloud_id: str
    state: VmState
    address: str = ""


VmAnswer = VmFacts | ProviderError | Superseded

# What the VMs of a region share, in the order in which it is made; each needs those before it.
SHARED = ("vnet", "securityGroup", "sshKey")


@dataclass(frozen=True, slots=True)
class SharedResource:
    """One of the things that the VMs of a region share. However often it is made with one token, it is there once.

    `epoch` is the number of the hold under which it is ordered; a lower one than was seen there is Superseded.
    """

    what: str  # one of SHARED
    token: str
    cloud_id: str = ""
    epoch: int = 0


class Cloud(Protocol):
    """One cloud. A call for a VM that fails gives an error in its place; the other VMs of the call are unaffected."""

    bulk: int  # how many VMs one call may carry

    async def perform(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        """Carry out `create`, `suspend`, `resume`, `reboot` or `terminate`; answers come in the order of the orders.

        Returns when the cloud has done it, not when it has taken note of it.
        """
        ...

    async def describe(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        """What these VMs are now, found by cloud id or, without one, by token. None: the cloud knows no such VM."""
        ...

    async def list_tagged(self, region: str, prefix: str) -> list[VmFacts]:
        """Every VM that carries a path of ours at or below `prefix`; every one that carries any, if it is empty."""
        ...

    async def validate(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        """What of this the cloud does not offer, in words; nothing: all of it is there. Changes nothing."""
        ...

    async def prepare(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        """Make a shared resource beside those `made` before it (what -> cloud id). Returns its cloud id."""
        ...

    async def release(self, region: str, resource: SharedResource) -> None:
        """Remove a shared resource, found by its cloud id or, without one, by its token. Gone already: done."""
        ...
