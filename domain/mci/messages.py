"""What travels between the workflows of this family and its activities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from pydantic import Field

from domain.errors import Category, join_first
from domain.mci.specs import MciSpec
from domain.mci.strays import Adoption
from domain.model import Chunk, Model, Refusal, ShortText, ShortWord, TargetFailure

# Workflow types, updates, signals.
SCALE_GROUP = "ScaleGroup"
SURVEY_VMS = "SurveyVms"
HOLDING = "holding"  # how the step of an MCI that holds begins
CONTINUE = "continue"
WITHDRAW = "withdraw"

# Activities on the actions queue, and on the clouds' own.
EXAMINE = "examine_mci"
ENROL = "enrol_vms"
PLAN_SURVEY = "plan_survey"
VALIDATE_PLACE = "validate_place"
PREPARE_PLACE = "prepare_place"
RELEASE_PLACE = "release_place"
SURVEY_PLACE = "survey_place"
READ_ORPHANS = "read_orphans"
REMOVE_ORPHAN = "RemoveOrphan"
TERMINATE_ORPHAN = "terminate_orphan"
ADOPT_ORPHAN = "AdoptOrphan"
IDENTIFY_ORPHAN = "identify_orphan"
ADOPT_VM = "adopt_vm"

PROBLEMS_SHOWN = 5


class Decision(Model):
    """What `continue` and `withdraw` carry: who says so, and why."""

    requested_by: ShortWord = ""
    reason: ShortText = ""


class PlaceNeeds(Model):
    """What VMs of one place are made from."""

    place: str
    specs: list[str]
    images: list[str]


class Examination(Model):
    """A look at a request before anything is kept: wrong in itself, or what only a cloud can tell."""

    refusal: Refusal | None = None
    connections: dict[str, tuple[str, str]] = {}  # name -> cloud and region
    providers: dict[str, str] = {}  # cloud/region -> who serves it, where that is not simulated
    unknown: list[PlaceNeeds] = []

    def located(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The spec with the cloud and the region of every connection that it names, and with who serves them."""
        groups = [dict(group) for group in spec.get("subGroups", ())]
        for group in groups:
            if (name := group.get("connectionName")) in self.connections:
                group["csp"], group["region"] = self.connections[name]
            if provider := self.providers.get(f"{group['csp']}/{group['region']}"):
                group["provider"] = provider
        return {**spec, "subGroups": groups}


class Findings(Model):
    """What a cloud says to what is wanted of it. `clear` is false if it could not be asked."""

    problems: list[str] = []
    clear: bool = True


def not_offered(answers: Sequence[Findings]) -> Refusal | None:
    """A refusal if a cloud says clearly that it lacks something."""
    if problems := [problem for each in answers for problem in each.problems if each.clear]:
        message, hint = join_first(problems, PROBLEMS_SHOWN), "mend the spec and ask again"
        return Refusal(category=Category.INVALID, message=message, hint=hint)
    return None


class PlaceVisit(Model):
    """An MCI at one place: to prepare it, or to leave it."""

    path: str
    epoch: int
    wants: PlaceNeeds


@dataclass(frozen=True, slots=True)
class ConnectionHold:
    """A wish to prepare or release a connection, alone, for so long by the database's clock."""

    place: str
    holder: str
    lasts: timedelta
    generation: int = 0


@dataclass(frozen=True, slots=True)
class HeldConnection:
    """A connection that is held. `epoch` rises with every hold: an order that names a lower one is too late."""

    place: str
    generation: int
    epoch: int
    resources: dict[str, str]


class LeaveResult(StrEnum):
    """What it means that an MCI leaves a place."""

    SHARED = "shared"  # others use what is there
    LAST = "last"  # nobody else does: remove it
    BUSY = "busy"  # somebody prepares or releases it just now
    OCCUPIED = "occupied"  # it has VMs yet, and does not leave


class Enrol(Model):
    """Bring VMs into a running action: those to be born, or those to be removed."""

    path: str
    epoch: int
    action: str
    at: datetime
    group: str = ""
    count: int = 0
    message: ShortText = ""  # for the history: who let it go on, and why


class Enrolled(Model):
    """The VMs that came in, in chunks; and for those that had failed before, how many and the first reasons."""

    chunks: list[Chunk] = []
    targets: int = 0
    lost: int = 0
    troubles: list[TargetFailure] = []


class Survey(Model):
    """Compare the records of an MCI with the clouds. A reconciliation asks about more, and looks for orphans."""

    path: str
    reconcile: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class SurveyedVm:
    """A VM as a survey finds it in the inventory."""

    path: str
    status: str
    epoch: int
    target_action: str
    info: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Correction:
    """What a cloud says of a VM, against what we thought. The same status with other facts is one, too."""

    known: SurveyedVm
    status: str
    info: dict[str, Any]
    message: str = ""


class SurveyPlan(Model):
    """Which VMs to ask about, in chunks; how many need not be asked; where to look for orphans."""

    path: str = ""
    chunks: list[Chunk] = []
    saved: int = 0
    places: list[str] = []


class SurveyPlace(Model):
    """One place of a survey."""

    survey: Survey
    place: str
    chunks: list[Chunk] = []


class SurveyReport(Model):
    """What a survey found. `changes` counts corrections by what they were; the lists are cut, the numbers are not."""

    calls: int = 0
    asked: int = 0
    saved: int = 0
    changes: dict[str, int] = {}
    stale: int = 0
    errors: list[str] = Field(default=[], max_length=50)
    corrected: list[str] = Field(default=[], max_length=100)
    orphans: list[str] = Field(default=[], max_length=100)
    orphans_found: int = 0

    def plus(self, other: SurveyReport) -> SurveyReport:
        """Both together."""
        changes: defaultdict[str, int] = defaultdict(int, self.changes)
        for word, number in other.changes.items():
            changes[word] += number
        return SurveyReport(
            calls=self.calls + other.calls,
            asked=self.asked + other.asked,
            saved=self.saved + other.saved,
            changes=dict(sorted(changes.items())),
            stale=self.stale + other.stale,
            errors=[*self.errors, *other.errors][:50],
            corrected=[*self.corrected, *other.corrected][:100],
            orphans=[*self.orphans, *other.orphans][:100],
            orphans_found=self.orphans_found + other.orphans_found,
        )


class Orphan(Model):
    """A VM in a cloud with a path of ours, and what the record of that path says, which is not about this VM."""

    path: str = ""
    place: str = ""
    cloud_id: str = ""
    state: str = ""
    record: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """By which they are sorted."""
        return self.place, self.path, self.cloud_id


class OrphanQuery(Model):
    """Orphans at or below a path, from after one of them on."""

    path: str = ""
    after: Orphan = Orphan()
    limit: int = 500


class Orphans(Model):
    """A page of orphans. `after` is there if there may be more; `silent` are the places that did not answer."""

    orphans: list[Orphan] = []
    silent: list[str] = []
    after: Orphan | None = None


class UnansweredOrder(Model):
    """A VM whose record went before any cloud had answered for it: its creation may be carried out yet."""

    place: str
    path: str
    generation: int
    since: datetime


class ConnectionDirectory(Protocol):
    """Connections by name. The built-in ones are the simulated clouds'; a file can replace them."""

    def find(self, name: str) -> tuple[str, str] | None:
        """The cloud and the region of a connection; None: there is none of that name."""
        ...

    def names(self) -> list[str]: ...

    def clouds(self) -> list[str]:
        """The clouds that this worker knows."""
        ...

    def provider(self, csp: str, region: str) -> str:
        """Who serves a region of a cloud from this worker."""
        ...

    def places(self) -> list[str]:
        """The real places that this worker reaches."""
        ...


class MciStore(Protocol):
    """What is kept for this family besides objects. Every method is one transaction."""

    async def unverified(self, wanted: Sequence[PlaceNeeds], at: datetime) -> list[PlaceNeeds]:
        """Of what is wanted, what no cloud was lately seen to offer."""
        ...

    async def mark_verified(self, wanted: PlaceNeeds, at: datetime) -> None:
        """A cloud offers all of this."""
        ...

    async def shared_resources(self, place: str) -> dict[str, str]:
        """What the VMs of a place share: what -> cloud id."""
        ...

    async def hold_connection(self, wish: ConnectionHold) -> HeldConnection | None:
        """Hold a connection. None: another one holds it."""
        ...

    async def renew_hold(self, held: HeldConnection, lasts: timedelta) -> bool:
        """Go on holding. False: the hold was lost."""
        ...

    async def record_resource(self, held: HeldConnection, lasts: timedelta, what: str, cloud_id: str | None) -> bool:
        """A resource was ordered or may be going (no id), was made, or removed (None). False: the hold was lost."""
        ...

    async def release_hold(self, held: HeldConnection) -> None: ...

    async def leave_place(self, wish: ConnectionHold, path: str) -> LeaveResult:
        """The MCI needs the place no more. The last one to leave holds it and removes what is shared."""
        ...

    async def finish_leaving(self, held: HeldConnection, path: str) -> bool:
        """Everything there is removed. False: the hold was lost."""
        ...

    async def count_vms(self, path: str) -> int:
        """How many VMs an MCI has."""
        ...

    async def place_of_group(self, path: str, group: str) -> str:
        """Where the VMs of a subgroup are; empty if there is no such MCI or subgroup."""
        ...

    async def enrol(self, order: Enrol) -> Enrolled:
        """Bring VMs into a running action. Asked again: the same answer."""
        ...

    async def adopt(self, adoption: Adoption) -> str:
        """Write that the record's VM is this one. Returns the record's status. Asked again: the same answer."""
        ...

    async def plan_survey(self, survey: Survey) -> SurveyPlan:
        """Whom a survey must ask about."""
        ...

    async def vms_in_status(self, chunk: Chunk, statuses: Sequence[str]) -> list[SurveyedVm]:
        """The VMs of a chunk that are in one of these statuses."""
        ...

    async def known_cloud_ids(self, path: str, place: str) -> dict[str, str]:
        """The VMs that we have in a place: path -> cloud id."""
        ...

    async def apply_corrections(self, corrections: Sequence[Correction], at: datetime) -> list[Correction]:
        """Write what clouds say of VMs at rest. Returns what was written: an action that came between wins."""
        ...

    async def unanswered_places(self) -> list[str]:
        """Where creations were ordered that nobody answered before their records went."""
        ...

    async def unanswered_page(self, place: str, after: UnansweredOrder | None, limit: int) -> list[UnansweredOrder]:
        """A page of them, from after one of them on."""
        ...

    async def forget_unanswered(self, some: Sequence[UnansweredOrder]) -> None:
        """Nothing will come of these any more."""
        ...


def needs_by_place(spec: MciSpec) -> list[PlaceNeeds]:
    """What is needed in each place, in the order of the places."""
    found: defaultdict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for group in spec.subGroups:
        found[group.place][0].add(group.specId)
        found[group.place][1].add(group.imageId)
    return [
        PlaceNeeds(place=place, specs=sorted(specs), images=sorted(images))
        for place, (specs, images) in sorted(found.items())
    ]
