"""The messages of actions and reads: requests, grants, outcomes, and the views that readers get.

They are recorded in workflow histories, so a field that is renamed or removed breaks their replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field, StringConstraints

from domain.errors import Category, Refused
from domain.message import FrozenModel as FrozenModel
from domain.message import ShortText as ShortText
from domain.message import ShortWord as ShortWord
from domain.message import SignedMessage as SignedMessage
from domain.statetable import NONE, Actor, LineEffect, Ruling
from domain.validation import ObjectPath, RefusingModel

ActionWord = Annotated[str, StringConstraints(max_length=40, to_lower=True)]

AT_WRITE_TIME = datetime.min.replace(tzinfo=UTC)  # the database's time at the write: a worker's clock may be wrong


class Request(SignedMessage, metaclass=RefusingModel):
    """A request for an action on one object: the single argument of every action workflow."""

    hashed: ClassVar[frozenset[str]] = frozenset({"spec"})
    path: ObjectPath
    action: ActionWord
    force: bool = False
    spec: dict[str, Any] | None = None
    on_behalf_of: ShortText = ""  # only of a program's request: who made what the program serves
    reason: ShortText = ""
    request_id: ShortWord = ""


class BeginRequest(FrozenModel):
    """A request together with the workflow run that will carry it out: what `begin` decides on."""

    request: Request
    run: str
    at: datetime
    proof_run: str = ""  # the run that uses the request's proof: after a reset not the first one; empty: `run`
    workflow: str = ""  # the workflow ID; empty: the object's path
    spec_digest: str = ""  # of the spec as it was requested; validation may have changed it since
    serves: list[str] | None = None  # the real placements that the worker reaches; the worker sets them
    no_simulation: bool = False  # the worker refuses simulated providers; the worker sets it
    real_backends: list[str] = []  # the roles of the worker's real backends
    objection: Refusal | None = None  # of whoever would do the work; the worker sets it
    parent: str = ""  # the workflow that asks for it, as Temporal knows it
    parent_run: str = ""
    started: datetime | None = None  # when the run started, by Temporal's clock: tells which of two runs is later


class Chunk(FrozenModel):
    """A part of an action's targets: those in one placement with paths from `first` to `last`, both included."""

    epoch: int
    placement: str
    action: str
    first: str
    last: str
    count: int


class LockHolder(FrozenModel):
    """An action that holds a conflicting lock, or that is ahead in the wait queue."""

    owner: str
    action: str
    run: str
    since: datetime


ACTION_NAME_KEY = "name"  # the key in a grant's details of the action's own name, if it has one


class Grant(FrozenModel):
    """The right to act. `epoch` fences it: a later action on the same object has a higher one."""

    epoch: int
    run: str = ""  # the run that it was granted to; unchanged when that run is reset or continued
    path: str
    action: str
    ruling: Ruling
    came_from: str
    during: str
    then: str
    chunks: list[Chunk] = []
    targets: int = 0
    skipped: dict[str, int] = {}
    details: dict[str, Any] = {}  # what the family's hooks decided at begin
    behind: list[LockHolder] = []  # the holders that must end before the work begins
    principal: str = ""  # whom the action is for: what it asks of other objects is asked on their behalf
    denied: str = ""  # why they may not have it done any more: it fails, and nothing is done


class Refusal(FrozenModel):
    """Why a request was refused, and what to do about it: a Refused error as a message."""

    category: Category
    message: str
    hint: str = ""
    holders: list[LockHolder] = []
    retry_after: int = 0  # seconds; 0: time alone does not help
    pace: float = 0.0  # seconds from one request of this tenant to the next that may pass; 0: any

    @classmethod
    def from_error(cls, refused: Refused) -> Refusal:
        """Converts a Refused error into a message."""
        return cls(**{name: getattr(refused, name) for name in ("category", "message", "hint", "retry_after", "pace")})

    def to_error(self) -> Refused:
        """Converts the message back into a Refused error."""
        return Refused(self.category, self.message, self.hint, self.retry_after, pace=self.pace)


class TargetFailure(FrozenModel):
    """One failed target of an action: its path, status and error."""

    path: str
    status: str
    error: str
    at: datetime


class TargetCounts(FrozenModel):
    """How many targets of a chunk succeeded and failed, as this attempt of the activity saw it."""

    done: int = 0
    failed: int = 0


class Move(FrozenModel):
    """One status change within an action: by a step row of `actor`, or into or out of a row of `action`."""

    path: str
    to: str  # NONE removes it; from NONE it comes into being
    actor: ShortWord = Actor.CONTROLLER
    action: ShortWord = ""
    message: ShortText = ""
    error: ShortText = ""  # stored beside the new status until the next move
    info: dict[str, Any] | None = None  # merged into the stored info; a value None removes its key
    spec: dict[str, Any] | None = None  # replaces the stored spec


class Step(FrozenModel):
    """The moves of one step within an action: all of them are made, or none."""

    path: str
    epoch: int
    at: datetime
    moves: list[Move]
    key: str = ""  # the same when a run asks again: what was ignored is recorded once


class StepResult(FrozenModel):
    """The result of a Step: whether its moves were made, and if not, why."""

    made: bool
    refusals: list[str] = []


class WorkReport(FrozenModel):
    """What an action's workflow reports when its work is over. `to` overrides the row's *then* or *else*."""

    message: ShortText = ""
    to: str = ""
    info: dict[str, Any] | None = None
    spec: dict[str, Any] | None = None
    moves: list[Move] = []
    failed: bool = False  # the action failed, whatever became of its targets
    withdrawn: bool = False  # it was asked to give up, and has undone what it had begun: it ends as cancelled
    lost: int = 0  # targets that failed and whose records are gone
    troubles: list[TargetFailure] = []  # their errors, for the outcome


class ActionResult(StrEnum):
    """The ways in which an action can end."""

    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ALREADY = "already"


class ActionEnding(WorkReport):
    """How an action ended, as `finish` stores it: its result and report, with the epoch, run and path of the grant."""

    epoch: int
    run: str
    path: str
    action: str = ""
    result: ActionResult
    at: datetime

    @classmethod
    def from_grant(cls, grant: Grant, result: ActionResult, done: WorkReport, at: datetime) -> ActionEnding:
        """Returns the Ending of a granted action."""
        left = {name: getattr(done, name) for name in WorkReport.model_fields}
        return cls(epoch=grant.epoch, run=grant.run, path=grant.path, action=grant.action, result=result, at=at, **left)


class Outcome(FrozenModel):
    """The result of an action. Small for any size of action: the details are in the inventory."""

    path: str
    action: str
    result: ActionResult
    status: str
    done: int = 0
    failed: int = 0
    skipped: dict[str, int] = {}
    troubles: list[TargetFailure] = []
    message: str = ""
    followers: list[str] = []  # workflows that wait for this end; returned to the workflow, not stored


class Admission(FrozenModel):
    """The answer to a request: a grant, a refusal, or the outcome of the same request made earlier. A grant with an
    outcome: the whole action was done while it was admitted."""

    grant: Grant | None = None
    refusal: Refusal | None = None
    outcome: Outcome | None = None


class Progress(FrozenModel):
    """The answer of an action's `progress` query: phase, step, and counts of targets."""

    path: str = ""
    action: str = ""
    phase: str = "waiting for admission"
    step: str = ""  # the current step, as text
    targets: int = 0
    done: int = 0
    failed: int = 0


class Target(NamedTuple):
    """One VM as the provider activities see it. A tuple, because ten thousand are made at a time."""

    path: str
    status: str
    previous_status: str
    spec: dict[str, Any]
    info: dict[str, Any]


class TargetLanding(NamedTuple):
    """The result for one target: its new status, its new info (None: unchanged), and its error."""

    path: str
    status: str
    info: dict[str, Any] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object that is created together with its parent."""

    path: str
    kind: str
    placement: str
    spec: dict[str, Any]


class ObjectView(FrozenModel):
    """An object as readers see it. A group's `status` is computed from its members."""

    path: str
    kind: str
    status: str
    phase: str
    target_action: str = NONE
    target_status: str = NONE
    previous_status: str = NONE
    placement: str = ""
    epoch: int
    created_at: datetime
    changed_at: datetime
    spec: dict[str, Any] = {}
    info: dict[str, Any] = {}
    error: str = ""
    counts: dict[str, int] = {}
    members: list[ObjectView] = []
    simulated: bool = False  # it exists only in a simulation


class PlacementCounts(FrozenModel):
    """The members of a group in one placement, counted by status."""

    placement: str
    counts: dict[str, int]


class TreeView(FrozenModel):
    """A group with its members counted by placement, and the first few errors of members."""

    object: ObjectView
    places: list[PlacementCounts]
    troubles: list[TargetFailure]


class HistoryLine(FrozenModel):
    """One status change, or one report that was ignored because it changed nothing."""

    seq: int
    path: str
    at: datetime
    actor: str
    action: str
    source: str
    to: str
    effect: LineEffect = LineEffect.APPLIED
    message: str = ""
    requested_by: str = ""
    on_behalf_of: str = ""
    reason: str = ""
    request_id: str = ""
    workflow: str = ""
    run: str = ""


class ReadQuery(SignedMessage):
    """The argument of every read of the inventory; each uses the fields that it needs."""

    path: str = ""
    kind: str = ""
    after: str = ""
    run: str = ""
    action: str = ""
    limit: int = Field(default=100, ge=1, le=5_000)


class ObjectsView(FrozenModel):
    """A page of objects. `after` is where the next page begins; empty on the last one."""

    objects: list[ObjectView]
    after: str = ""


class HistoryView(FrozenModel):
    """The last changes of an object, oldest first."""

    lines: list[HistoryLine]


class StoreView(FrozenModel):
    """The store as a worker sees it: its URL, and its schema version beside the newest that the worker knows."""

    url: str
    version: str
    newest: str
    id: str = ""
    incarnation: int = 0
    no_simulation: bool = False  # its workers refuse simulated providers
