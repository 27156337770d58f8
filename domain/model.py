"""What travels: requests, grants, tallies, outcomes, and what readers get to see."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from domain.errors import Category, Refused
from domain.fields import ObjectPath
from domain.statetable import NONE, Actor, Ruling

ShortText = Annotated[str, StringConstraints(max_length=500)]
ShortWord = Annotated[str, StringConstraints(max_length=100)]
ActionWord = Annotated[str, StringConstraints(max_length=40, to_lower=True)]


# In place of a time: the database's own when it is written. A worker's clock may be wrong.
WHEN_WRITTEN = datetime.min.replace(tzinfo=UTC)


class Model(BaseModel):
    """Frozen, and strict about what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Request(Model):
    """What a user asks for: the one argument of every action workflow."""

    path: ObjectPath
    action: ActionWord
    force: bool = False
    spec: dict[str, Any] | None = None
    requested_by: ShortWord = ""
    reason: ShortText = ""
    request_id: ShortWord = ""


class Claim(Model):
    """A request, and the run that carries it out."""

    request: Request
    run: str
    at: datetime
    workflow: str = ""  # the ID under which it runs; the object's path if not said
    spec_digest: str = ""  # of the spec as it was asked for, which examining may have changed
    serves: list[str] | None = None  # the real places that the worker reaches; it says so itself, the workflow cannot
    started: datetime | None = None  # when the run started, by Temporal's clock: of two runs, which is the later one


class Chunk(Model):
    """Some of the targets of an action: those in one place whose paths lie between two paths, both included."""

    epoch: int
    placement: str
    action: str
    first: str
    last: str
    count: int


class Holder(Model):
    """Who stands in the way, or ahead in line."""

    owner: str
    action: str
    run: str
    since: datetime


ACTION_NAME = "name"  # in a grant's details: what the action is called, if it has a name of its own


class Grant(Model):
    """The right to act. `epoch` fences it: a later action on the same object has a higher one."""

    epoch: int
    run: str = ""  # to which it was granted; it stays so when the run is reset or continued
    path: str
    action: str
    ruling: Ruling
    came_from: str
    during: str
    then: str
    chunks: list[Chunk] = []
    targets: int = 0
    skipped: dict[str, int] = {}
    details: dict[str, Any] = {}  # what the family decided at begin
    behind: list[Holder] = []  # whose end is awaited before the work begins


class Holders(Model):
    """Several holders, as the one argument that an activity takes."""

    holders: list[Holder]


class QueuedWorkflow(Model):
    """Who stands in line, or has passed: the workflow's ID."""

    workflow: str


class QueueCommand(Model):
    """Close or open the line at a path; the run that does it."""

    path: str
    run: str
    at: datetime


class Refusal(Model):
    """Why not, and what to do about it."""

    category: Category
    message: str
    hint: str = ""
    holders: list[Holder] = []

    @classmethod
    def of(cls, refused: Refused) -> Refusal:
        """The error, as it travels."""
        return cls(category=refused.category, message=refused.message, hint=refused.hint)

    def error(self) -> Refused:
        """What travelled, as an error again."""
        return Refused(self.category, self.message, self.hint)


class TargetFailure(Model):
    """What went wrong with one target."""

    path: str
    status: str
    error: str
    at: datetime


class Tally(Model):
    """How the targets of a chunk came out, as far as this attempt saw it."""

    done: int = 0
    failed: int = 0


class Move(Model):
    """One object moved within an action: by a step row of `actor`, or into or out of a row of `action`."""

    path: str
    to: str  # NONE removes it; from NONE it comes into being
    actor: ShortWord = Actor.CONTROLLER
    action: ShortWord = ""
    message: ShortText = ""
    error: ShortText = ""  # kept beside the new status until the next move
    info: dict[str, Any] | None = None  # merged over what is kept; a value None removes its key
    spec: dict[str, Any] | None = None  # replaces what is kept


class Step(Model):
    """Moves within an action: all of them are made, or none."""

    path: str
    epoch: int
    at: datetime
    moves: list[Move]


class Stepped(Model):
    """Whether the moves were made, and if not, why not."""

    made: bool
    refusals: list[str] = []


class Done(Model):
    """What an action leaves when its work has ended. `to`: another end than the row's *then* or *else*."""

    message: ShortText = ""
    to: str = ""
    info: dict[str, Any] | None = None
    spec: dict[str, Any] | None = None
    moves: list[Move] = []
    failed: bool = False  # it says itself that it failed, whatever became of its targets
    lost: int = 0  # targets that failed and whose records are gone
    troubles: list[TargetFailure] = []  # what is to be told of them


class Result(StrEnum):
    """How an action ended."""

    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ALREADY = "already"


class Ending(Model):
    """How an action ended, as its workflow saw it. Epoch, run and path are the grant's, as they are kept."""

    epoch: int
    run: str
    path: str
    action: str = ""
    result: Result
    message: ShortText = ""
    at: datetime
    to: str = ""
    info: dict[str, Any] | None = None
    spec: dict[str, Any] | None = None
    moves: list[Move] = []
    failed: bool = False
    lost: int = 0
    troubles: list[TargetFailure] = []

    @classmethod
    def of(cls, grant: Grant, result: Result, done: Done, at: datetime) -> Ending:
        """The end of a granted action."""
        left = {name: getattr(done, name) for name in Done.model_fields}
        which = {"epoch": grant.epoch, "run": grant.run, "path": grant.path, "action": grant.action}
        return cls(**which, result=result, at=at, **left)


class Outcome(Model):
    """What became of an action. Small whatever the size of the action: details are in the inventory."""

    path: str
    action: str
    result: Result
    status: str
    done: int = 0
    failed: int = 0
    skipped: dict[str, int] = {}
    troubles: list[TargetFailure] = []
    message: str = ""
    followers: list[str] = []  # who waits for the end: told to the workflow, not kept


class Admission(Model):
    """The answer to a request: a grant, a refusal, or the outcome of the same request made earlier.

    A grant together with an outcome: all of it could be done at once, and has been.
    """

    grant: Grant | None = None
    refusal: Refusal | None = None
    outcome: Outcome | None = None


class Progress(Model):
    """What the `progress` query answers."""

    path: str = ""
    action: str = ""
    phase: str = "waiting for admission"
    step: str = ""  # what is going on right now, in words
    targets: int = 0
    done: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """One VM as the provider activities see it. Ten thousand of these are made at a time: plain, not validated."""

    path: str
    status: str
    previous_status: str
    spec: dict[str, Any]
    info: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Landing:
    """Where one target came out: its new status, what is known of it now (None: as before), and what went wrong."""

    path: str
    status: str
    info: dict[str, Any] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object to be made together with its parent."""

    path: str
    kind: str
    placement: str
    spec: dict[str, Any]


class ObjectView(Model):
    """An object as readers see it. `status` of a group is computed from its members."""

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


class PlaceView(Model):
    """How the members of a group in one place are."""

    placement: str
    counts: dict[str, int]


class TreeView(Model):
    """A group with its members counted by place, and what is wrong with the first few of them."""

    object: ObjectView
    places: list[PlaceView]
    troubles: list[TargetFailure]


class HistoryLine(Model):
    """One change, or one message that changed nothing and was ignored."""

    seq: int
    path: str
    at: datetime
    actor: str
    action: str
    source: str
    to: str
    message: str = ""
    requested_by: str = ""
    reason: str = ""
    request_id: str = ""
    workflow: str = ""
    run: str = ""


class Query(Model):
    """What a reader asks for; each read uses the fields that it needs."""

    path: str = ""
    kind: str = ""
    after: str = ""
    run: str = ""
    limit: int = Field(default=100, ge=1, le=5_000)


class ObjectsView(Model):
    """A page of objects."""

    objects: list[ObjectView]


class HistoryView(Model):
    """The last changes of an object, oldest first."""

    lines: list[HistoryLine]


class StoreView(Model):
    """The store as a worker sees it: where it is, and whether its schema is the one that the worker knows."""

    url: str
    version: str
    newest: str
    id: str = ""
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A promise that was broken: which one, for which object, and how."""

    invariant: str
    path: str
    what: str


class Verification(Model):
    """What a check of every promise found, and over how much it looked."""

    findings: list[BrokenPromise] = []
    more: int = 0  # findings that are not listed
    looked_at: dict[str, int] = {}
