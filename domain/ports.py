"""The protocols between the layers: the inventory and the clouds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from domain.actionview import ActionView
from domain.aliases import Alias, AliasQuery
from domain.dryrun import DryRun
from domain.errors import ProviderError, Superseded
from domain.events import Event, EventCursor
from domain.healing import HealReport, Leftover, OpenRun, PruneResult, StuckItem
from domain.identities import ProofUse
from domain.invariants import AuditSnapshot
from domain.locks import HeldLock
from domain.model import (
    ActionEnding,
    Admission,
    BeginRequest,
    Chunk,
    Grant,
    HistoryLine,
    LockHolder,
    ObjectView,
    Outcome,
    Step,
    StepResult,
    Target,
    TargetLanding,
    TreeView,
    WorkReport,
)
from domain.quotas import QuotaQuery, QuotasView
from domain.requests import AccessAttempt
from domain.vmstate import VmState as VmState
from domain.waitqueue import QueueCommand

T = TypeVar("T")

# Inline work, done in the activity that admits an action. It is quick, and may run again, even after the action's end.
# Returns the action's result (`failed`: for good), or the grant from which the workflow continues.
WorkAtBegin = Callable[[Grant], Awaitable[WorkReport | Grant]]


class TransactionRunner(Protocol):
    """A database that runs a function of a connection as one transaction."""

    async def run_transaction(self, work: Callable[[Any], T]) -> T: ...


class Inventory(Protocol):
    """The store of objects, locks and history. Every method is one transaction; the writers are idempotent."""

    async def begin_action(self, claim: BeginRequest) -> Admission:
        """Admits an action, with its locks and status, or returns the refusal."""
        ...

    async def read_quotas(self, query: QuotaQuery) -> QuotasView:
        """Returns what a page of tenants uses, and may use."""
        ...

    async def preview_admission(self, claim: BeginRequest, dead: Sequence[LockHolder] = ()) -> DryRun:
        """Dry run of begin, as if the actions of these dead holders had been abandoned. Changes nothing."""
        ...

    async def record_access_attempt(self, attempt: AccessAttempt) -> None:
        """Writes a line for the history of an object: a cancel, or what was refused to somebody."""
        ...

    async def use_proof(self, proof: ProofUse | None, run: str) -> None:
        """Takes a proof for a run; Refused if another run has used it."""
        ...

    async def is_proof_used(self, proof: str) -> bool:
        """Tells whether a run has used this proof."""
        ...

    async def forget_expired(self, now: datetime) -> int:
        """Removes the proofs that no worker accepts any more."""
        ...

    async def apply_step(self, step: Step) -> StepResult:
        """Applies moves within an action: all or none. Refused if a table forbids one, or the action has ended."""
        ...

    async def list_targets(self, chunk: Chunk) -> list[Target]:
        """Returns the targets of a chunk that have not landed yet."""
        ...

    async def is_action_open(self, path: str, epoch: int) -> bool:
        """Tells whether the action with this epoch, on the path or above it, is open. Asked just before an order."""
        ...

    async def land_targets(self, chunk: Chunk, landings: Sequence[TargetLanding], at: datetime) -> int:
        """Writes the statuses that targets reached, in bulk. Returns how many; a stale epoch writes none."""
        ...

    async def finish_action(self, ending: ActionEnding) -> Outcome:
        """Ends an action and releases its locks. A second finish returns the stored outcome."""
        ...

    async def filter_unreleased_holders(self, holders: Sequence[LockHolder]) -> list[LockHolder]:
        """Returns those holders that have not released their locks."""
        ...

    async def close_wait_queue(self, order: QueueCommand) -> list[LockHolder]:
        """Closes a path's wait queue to new requests. Returns who is in it; refused if it is closed already."""
        ...

    async def open_wait_queue(self, order: QueueCommand) -> None:
        """Opens a path's wait queue again."""
        ...

    async def abandon_run(self, owner: str, run: str, at: datetime, message: str) -> int:
        """Ends a dead run's action: restores its objects, releases its locks. Returns how many were restored."""
        ...

    async def list_stuck_items(self, before: datetime) -> list[StuckItem]:
        """Returns actions, locks and objects that are under way since before that time."""
        ...

    async def filter_lost_runs(self, runs: Sequence[OpenRun], before: datetime) -> list[str]:
        """Returns the open runs whose action ended before that time, or that began before a restore of the store."""
        ...

    async def heal_stuck_item(self, suspect: StuckItem, at: datetime, message: str) -> bool:
        """Abandons a suspect that the caller knows to be dead. Returns False if it had come to rest by itself."""
        ...

    async def list_leftovers(self) -> list[Leftover]:
        """Returns objects that unsuccessful actions may have created outside, and that nothing has touched since."""
        ...

    async def prune_batch(
        self, before: datetime, after: int, busy: Set[str], export: Callable[[list[dict[str, Any]]], None]
    ) -> PruneResult:
        """Removes a batch of actions that ended before a time, after epoch `after`; `export` gets the rows first."""
        ...

    async def save_heal_report(self, report: HealReport) -> HealReport: ...

    async def read_reports(self, limit: int) -> list[HealReport]: ...

    async def read_object(self, path: str, members: bool = False) -> ObjectView: ...

    async def read_tree(self, path: str, troubles: int) -> TreeView: ...

    async def read_outcome(self, run: str) -> Outcome:
        """Returns the outcome of a run's action; refuses as not found if it has not ended or never began."""
        ...

    async def read_action(self, run: str) -> ActionView: ...

    async def read_last_action(self, path: str, hidden_action: str = "") -> ActionView:
        """Returns the last action that was admitted on an object; of a hidden action, its last run."""
        ...

    async def find_aliases(self, query: AliasQuery) -> list[Alias]: ...

    async def read_newest_position(self) -> EventCursor: ...

    async def list_events_after(self, cursor: EventCursor, limit: int) -> list[Event]: ...

    async def list_objects(self, kind: str, prefix: str, after: str, limit: int) -> list[ObjectView]: ...

    async def read_objects(self, paths: Sequence[str]) -> dict[str, ObjectView]:
        """Returns the objects that exist at these paths, by path."""
        ...

    async def read_history(self, path: str, limit: int, after: int = 0) -> list[HistoryLine]: ...

    async def list_locks(self, prefix: str) -> list[HeldLock]: ...

    async def check_store_invariants(self, prefix: str) -> AuditSnapshot:
        """Checks the invariants that need the inventory only, at or below a path. Returns violations and open work."""
        ...

    async def read_last_epoch(self) -> int:
        """Returns the number of the last action that has begun; 0 if there was none."""
        ...

    async def list_paths_begun_since(self, epoch: int) -> list[str]:
        """Returns the objects on which an action has begun after the one with this epoch."""
        ...


@dataclass(frozen=True, slots=True)
class VmOrder:
    """One VM in one provider call. The token gives a repeated call a single effect.

    `epoch` is the ordering action's; 0 for a read. A cloud that stores the highest epoch of each VM refuses a lower one
    as Superseded: a worker that was frozen may send its order after a later action.
    """

    path: str
    token: str
    cloud_id: str = ""
    spec: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0


class VmFacts(NamedTuple):
    """A cloud's facts about one VM."""

    path: str
    cloud_id: str
    state: VmState
    address: str = ""
    token: str = ""  # of the order that made it
    created: datetime | None = None

    @property
    def key(self) -> VmKey:
        return self.path, self.cloud_id


# The order in which a cloud lists its VMs: path, cloud id.
VmKey = tuple[str, str]
FIRST_VM: VmKey = ("", "")
VMS_PER_PAGE = 1_000

VmAnswer = VmFacts | ProviderError | Superseded

# What a tenant's VMs share in a region, in the order of creation; each needs those before it.
SHARED_RESOURCE_TYPES = ("vnet", "securityGroup", "sshKey")


@dataclass(frozen=True, slots=True)
class SharedResource:
    """A resource that a tenant's VMs share in a region. Created any number of times with one token, it exists once.

    Only orders of its tenant use or remove it.
    `epoch` is that of the hold under which it is ordered; a lower one than seen before is Superseded.
    """

    what: str  # one of SHARED_RESOURCE_TYPES
    token: str
    tenant: str
    cloud_id: str = ""
    epoch: int = 0


class Cloud(Protocol):
    """One cloud. A failed VM has an error in its place of the answer; the other VMs of the call are unaffected."""

    orders_per_call: int  # VMs per call

    async def perform_orders(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        """Carries out `create`, `suspend`, `resume`, `reboot` or `terminate`; answers in the order of the orders.

        Returns when the cloud has done it, not when it has accepted it.
        """
        ...

    async def describe_vms(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        """Describes VMs, found by cloud id or else by token; None for a VM that the cloud does not know."""
        ...

    async def list_tagged_vms(self, region: str, prefix: str, after: VmKey = FIRST_VM) -> list[VmFacts]:
        """Lists living VMs that carry a path of ours at or below `prefix`; all of ours if it is empty.

        Returns a page: at most VMS_PER_PAGE, in the order of their keys, after a key; an empty page is the end.
        """
        ...

    async def list_missing_offers(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        """Returns a message for each spec or image that the cloud does not offer. Changes nothing."""
        ...

    async def prepare_resource(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        """Creates a shared resource; `made` has those created before it (what -> cloud id). Returns its cloud id."""
        ...

    async def release_resource(self, region: str, resource: SharedResource) -> None:
        """Removes a shared resource, found by cloud id or else by token. One that is gone counts as removed."""
        ...
