"""Messages between the workflows and the activities of the MCI family, and the protocol of its store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from pydantic import Field

from domain.errors import Category, join_first_texts
from domain.exposure import READ
from domain.mci.orphans import AdoptOrphanOrder
from domain.mci.specs import MciSpec
from domain.model import Chunk, FrozenModel, Refusal, ShortText, SignedMessage, TargetFailure
from domain.requests import AboutRequest

# Workflow types, updates, signals.
SCALE_GROUP = "ScaleGroup"
SURVEY_VMS = "SurveyVms"
HOLDING = "holding"  # the `step` of an MCI that waits for `continue` or `withdraw` begins with this
CONTINUE = "continue"
WITHDRAW = "withdraw"

# Activities that are called by name, and workflow types.
VALIDATE_PLACE = "validate_place"
ADOPT_ORPHAN = "AdoptOrphan"

PROBLEMS_SHOWN = 5


class MciGrantDetails(FrozenModel):
    """What begin decides about an MCI's places: which it uses, which to prepare, which no other of its tenant uses."""

    places: list[str] = []  # that it uses
    prepare: list[str] = []  # those of them that are not prepared
    alone: list[str] = []  # those of them that no other MCI of the tenant uses


class HoldDecision(SignedMessage):
    """The argument of the updates `continue` and `withdraw`: who decided, and why."""

    reason: ShortText = ""


class PlaceRequirements(AboutRequest):
    """The specs and images that an MCI's VMs need in one place; a dry run says for which request."""

    place: str
    specs: list[str]
    images: list[str]


class MciCheckResult(FrozenModel):
    """The result of checking a request before anything is stored: a refusal, or what only a cloud can answer."""

    refusal: Refusal | None = None
    connections: dict[str, tuple[str, str]] = {}  # name -> cloud and region
    providers: dict[str, str] = {}  # cloud/region -> its provider, unless it is simulated
    unknown: list[PlaceRequirements] = []

    def spec_with_places(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Returns the spec with cloud, region and provider filled in for every connection that it names."""
        groups = [dict(group) for group in spec.get("subGroups", ())]
        for group in groups:
            if (name := group.get("connectionName")) in self.connections:
                group["csp"], group["region"] = self.connections[name]
            if provider := self.providers.get(f"{group['csp']}/{group['region']}"):
                group["provider"] = provider
        return {**spec, "subGroups": groups}


class PlaceResult(FrozenModel):
    """The result of work at one place: what its cloud objects to. `clear` is false if it could not be asked."""

    problems: list[str] = []
    clear: bool = True


def refusal_of_missing_offers(answers: Sequence[PlaceResult]) -> Refusal | None:
    """Returns a refusal if a cloud says clearly that it does not offer something."""
    if problems := [problem for answer in answers for problem in answer.problems if answer.clear]:
        message, hint = (
            join_first_texts(problems, PROBLEMS_SHOWN),
            "write what it has into the spec and send it again; regions: starter connections",
        )
        return Refusal(category=Category.INVALID, message=message, hint=hint)
    return None


class MciAtPlace(FrozenModel):
    """An MCI at one place, to prepare the place's shared resources or to leave them."""

    path: str
    epoch: int
    wants: PlaceRequirements


@dataclass(frozen=True, slots=True)
class ConnectionLockRequest:
    """An action's request to hold a connection exclusively, to prepare or release its resources, for `lasts`."""

    tenant: str
    place: str
    path: str
    epoch: int  # of the action; also the generation of what it creates
    lasts: timedelta

    @property
    def holder(self) -> str:
        """Names the action as the holder of a lock: the same text in every worker that carries it out."""
        return f"{self.path}#{self.epoch}"


@dataclass(frozen=True, slots=True)
class ConnectionLock:
    """A connection that is held. `epoch` rises with every hold, so that orders under an older hold are refused."""

    tenant: str
    place: str
    generation: int
    epoch: int
    resources: dict[str, str]


class LeavePlaceResult(StrEnum):
    """What became of an MCI that was to leave a place, if it is not the last one there."""

    SHARED = "shared"  # it left; other MCIs of the tenant use the place
    OCCUPIED = "occupied"  # the MCI still has VMs there, and does not leave


class AddVms(FrozenModel):
    """The order to add VMs to a running action: new ones, or existing ones to remove."""

    path: str
    epoch: int
    action: str
    at: datetime
    group: str = ""
    count: int = 0
    message: ShortText = ""  # for the history: who decided to continue, and why


class AddedVms(FrozenModel):
    """The VMs that were added, in chunks; `lost` and `troubles` report those that had failed before."""

    chunks: list[Chunk] = []
    targets: int = 0
    lost: int = 0
    troubles: list[TargetFailure] = []


class SurveyRequest(SignedMessage):
    """The request for a survey of an MCI. `reconcile` asks about more VMs, and looks for orphans."""

    path: str
    reconcile: bool = False
    dry_run: bool = False

    def verb_to_authorize(self, verb: str) -> str:
        return verb if self.reconcile and not self.dry_run else READ


@dataclass(frozen=True, slots=True)
class SurveyedVm:
    """A VM's record, as a survey reads it."""

    path: str
    status: str
    epoch: int
    target_action: str
    info: dict[str, Any]


@dataclass(frozen=True, slots=True)
class VmCorrection:
    """A VM's status or info according to its cloud, where it differs from the record."""

    known: SurveyedVm
    status: str
    info: dict[str, Any]
    message: str = ""


class SurveyPlan(FrozenModel):
    """The plan of a survey: chunks of VMs to ask about, the number of others, and places to search for orphans."""

    path: str = ""
    chunks: list[Chunk] = []
    saved: int = 0
    places: list[str] = []


class SurveyPlace(FrozenModel):
    """The part of a survey that concerns one place."""

    survey: SurveyRequest
    place: str
    chunks: list[Chunk] = []


class SurveyReport(FrozenModel):
    """The result of a survey. `changes` counts corrections by type; the lists are cut, the numbers are not."""

    calls: int = 0
    asked: int = 0
    saved: int = 0
    changes: dict[str, int] = {}
    stale: int = 0
    errors: list[str] = Field(default=[], max_length=50)
    corrected: list[str] = Field(default=[], max_length=100)
    orphans: list[str] = Field(default=[], max_length=100)
    orphans_found: int = 0

    def sum_with(self, other: SurveyReport) -> SurveyReport:
        """Returns the sum of two reports."""
        return SurveyReport(
            calls=self.calls + other.calls,
            asked=self.asked + other.asked,
            saved=self.saved + other.saved,
            changes=dict(sorted((Counter(self.changes) + Counter(other.changes)).items())),
            stale=self.stale + other.stale,
            errors=[*self.errors, *other.errors][:50],
            corrected=[*self.corrected, *other.corrected][:100],
            orphans=[*self.orphans, *other.orphans][:100],
            orphans_found=self.orphans_found + other.orphans_found,
        )


class UnansweredOrder(FrozenModel):
    """A VM whose record was removed before its cloud answered: the cloud may still create it."""

    place: str
    path: str
    generation: int
    since: datetime


class MciStore(Protocol):
    """The MCI family's store, besides objects. Every method is one transaction."""

    async def list_unverified_requirements(
        self, wanted: Sequence[PlaceRequirements], at: datetime
    ) -> list[PlaceRequirements]:
        """Returns the wanted specs and images that no cloud has confirmed in the last 24 hours."""
        ...

    async def record_verified_requirements(self, wanted: PlaceRequirements, at: datetime) -> None:
        """Records that a cloud offers these specs and images."""
        ...

    async def read_shared_resources(self, tenant: str, place: str) -> dict[str, str]:
        """Returns what a tenant's VMs share in a place: what -> cloud id."""
        ...

    async def acquire_connection_lock(self, wish: ConnectionLockRequest) -> ConnectionLock | None:
        """Acquires the exclusive hold on a connection; None if another holder has it.

        Raises Superseded if the action is over, like all that an action does here in its own name.
        """
        ...

    async def renew_connection_lock(self, held: ConnectionLock, lasts: timedelta) -> bool:
        """Extends the hold; False if it was lost."""
        ...

    async def record_shared_resource(
        self, held: ConnectionLock, lasts: timedelta, what: str, cloud_id: str | None
    ) -> bool:
        """Records a shared resource.

        An empty id: it was ordered, or is being removed. None: it was removed. Returns False if the hold was lost.
        """
        ...

    async def release_connection_lock(self, held: ConnectionLock) -> None: ...

    async def leave_place(self, wish: ConnectionLockRequest) -> LeavePlaceResult | ConnectionLock | None:
        """Ends the MCI's use of a place. The tenant's last MCI gets the hold, to remove the shared resources.

        None if another holder has it.
        """
        ...

    async def finish_leaving_place(self, held: ConnectionLock, wish: ConnectionLockRequest) -> bool:
        """Records that the last MCI has left and the shared resources are removed; False if the hold was lost."""
        ...

    async def count_vms(self, path: str) -> int:
        """Returns how many VMs an MCI has."""
        ...

    async def place_of_group(self, path: str, group: str) -> str:
        """Returns the place of a subgroup's VMs; empty if there is no such MCI or subgroup."""
        ...

    async def add_vms_to_action(self, order: AddVms) -> AddedVms:
        """Adds VMs to a running action. Repeatable."""
        ...

    async def adopt_orphan(self, adoption: AdoptOrphanOrder) -> str:
        """Writes that the record's VM is this orphan, and returns the record's status. Repeatable."""
        ...

    async def plan_survey(self, survey: SurveyRequest) -> SurveyPlan:
        """Decides which VMs a survey must ask clouds about."""
        ...

    async def list_vms_in_status(self, chunk: Chunk, statuses: Sequence[str]) -> list[SurveyedVm]:
        """Returns the VMs of a chunk that are in one of these statuses."""
        ...

    async def apply_corrections(self, corrections: Sequence[VmCorrection], at: datetime) -> list[VmCorrection]:
        """Writes corrections to VMs at rest. Returns those written; a VM that an action took meanwhile is skipped."""
        ...

    async def list_unanswered_places(self) -> list[str]:
        """Returns the places that have unanswered orders."""
        ...

    async def list_unanswered_orders(
        self, place: str, after: UnansweredOrder | None, limit: int
    ) -> list[UnansweredOrder]:
        """Returns a page of the unanswered orders of a place, after a given one."""
        ...

    async def forget_unanswered_orders(self, some: Sequence[UnansweredOrder]) -> None:
        """Removes unanswered orders that can no longer create a VM."""
        ...


def requirements_by_place(spec: MciSpec) -> list[PlaceRequirements]:
    """Returns the specs and images that an MCI needs, for each place, sorted by place."""
    needs: defaultdict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for group in spec.subGroups:
        needs[group.place][0].add(group.specId)
        needs[group.place][1].add(group.imageId)
    return [
        PlaceRequirements(place=place, specs=sorted(specs), images=sorted(images))
        for place, (specs, images) in sorted(needs.items())
    ]
