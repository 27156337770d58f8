"""MCI, SubGroup and VM: the tables, the request, and the status computed from the VMs.

An MCI's stored status is only its phase: what it is shown as is computed from its VMs whenever somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from domain.errors import Refused
from domain.kinds import Kind, Verb
from domain.limits import MAX_SUBGROUPS, MAX_VMS_PER_MCI
from domain.machine import NONE, SAME, Actor, Row, StateTable
from domain.model import NewObject
from domain.paths import MAX_NAME, check_name
from domain.ports import VmState
from domain.wire import CONTROL_VMS, CREATE_MCI, REMOVE_VMS, check_csp, placement


class Status(StrEnum):
    CREATING = "Creating"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RESUMING = "Resuming"
    REBOOTING = "Rebooting"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"
    UNDEFINED = "Undefined"


S = Status
EMPTY = "Empty"  # an MCI of which everything was refined away

# What a cloud may find a VM to be when an action on it did not end as ordered.
_UNSETTLED = (S.CREATING, S.SUSPENDING, S.RESUMING, S.REBOOTING, S.TERMINATING)
_OBSERVED = (S.RUNNING, S.SUSPENDED, S.TERMINATED, S.UNDEFINED)

# Which VMs lose their records, after the cloud has confirmed that they are gone.
_REMOVED = {
    "refine": (S.FAILED, S.UNDEFINED),
    "delete": (S.RUNNING, S.SUSPENDED, S.TERMINATED, S.FAILED, S.UNDEFINED),
}

# fmt: off
VM = StateTable("vm", "VM", (
    #   action       from          while           then          else
    Row("create",    NONE,         S.CREATING,     S.RUNNING,    S.FAILED),
    Row("suspend",   S.RUNNING,    S.SUSPENDING,   S.SUSPENDED,  S.FAILED),
    Row("resume",    S.SUSPENDED,  S.RESUMING,     S.RUNNING,    S.FAILED),
    Row("reboot",    S.RUNNING,    S.REBOOTING,    S.RUNNING,    S.FAILED),
    Row("terminate", S.RUNNING,    S.TERMINATING,  S.TERMINATED, S.FAILED),
    Row("terminate", S.SUSPENDED,  S.TERMINATING,  S.TERMINATED, S.FAILED),
    Row("terminate", S.TERMINATED, None,           SAME),                                  # asked twice: nothing to do
    Row("terminate", S.FAILED,     S.TERMINATING,  S.TERMINATED, S.FAILED, force=True),
    Row("terminate", S.UNDEFINED,  S.TERMINATING,  S.TERMINATED, S.FAILED, force=True),
    *(Row(remove,    source,       S.TERMINATING,  NONE,         S.FAILED, actor=Actor.GROUP)
      for remove, sources in _REMOVED.items() for source in sources),
    *(Row("observe", source,       None,           seen,         actor=Actor.CLOUD)        # the cloud knows better
      for source in _UNSETTLED for seen in _OBSERVED),
))

MCI = StateTable("mci", "MCI", (
    #   action       from          while           then          else
    Row("create",    NONE,         S.CREATING,     S.RUNNING,    S.FAILED),
    Row("suspend",   S.RUNNING,    S.SUSPENDING,   SAME,         SAME),   # Running here means: its VMs speak for it
    Row("resume",    S.RUNNING,    S.RESUMING,     SAME,         SAME),
    Row("reboot",    S.RUNNING,    S.REBOOTING,    SAME,         SAME),
    Row("terminate", S.RUNNING,    S.TERMINATING,  SAME,         SAME),
    Row("terminate", S.FAILED,     S.TERMINATING,  SAME,         SAME,     force=True),
    Row("refine",    S.RUNNING,    S.TERMINATING,  S.RUNNING,    SAME),
    Row("refine",    S.FAILED,     S.TERMINATING,  S.RUNNING,    SAME),   # with no VM left that is: Empty
    Row("delete",    S.RUNNING,    S.TERMINATING,  NONE,         SAME),
    Row("delete",    S.FAILED,     S.TERMINATING,  NONE,         SAME),
))

# Ties go to the earlier one.
TIE_ORDER = (
    S.FAILED, S.SUSPENDED, S.RUNNING, S.TERMINATED, S.CREATING,
    S.SUSPENDING, S.RESUMING, S.REBOOTING, S.TERMINATING, S.UNDEFINED,
)

# What the cloud is told to do for an action, and what the VM should be then. A record goes only with its VM.
ORDERS = dict.fromkeys(_REMOVED, "terminate")
WANTED = {row.action: S.TERMINATED if row.then == NONE else Status(row.then) for row in VM.rows if row.during}

OBSERVED: dict[VmState, Status] = {
    VmState.RUNNING:    S.RUNNING,
    VmState.STOPPED:    S.SUSPENDED,
    VmState.TERMINATED: S.TERMINATED,
}
# fmt: on


def counts_by_status(counts: Mapping[str, int]) -> dict[Status, int]:
    """VMs per status, in tie order; a word that we do not know counts as Undefined."""
    known = {status.value for status in TIE_ORDER}
    tidy = dict.fromkeys(TIE_ORDER, 0)
    for word, number in counts.items():
        tidy[Status(word) if word in known else S.UNDEFINED] += number
    return tidy


def aggregate(phase: str, counts: Mapping[str, int]) -> str:
    """The MCI's status: `Running:5 (R:5/5)`, `Partial-Running:3 (R:3/5)`, or the bare phase while there is no VM."""
    tidy = counts_by_status(counts)
    total = sum(tidy.values())
    if total == 0 and phase == S.RUNNING:
        return EMPTY
    if total == 0 or (phase == S.FAILED and tidy[S.FAILED] == total):
        return phase
    dominant = max(TIE_ORDER, key=lambda status: tidy[status])  # max keeps the first of equals
    partial = "" if tidy[dominant] == total else "Partial-"
    return f"{partial}{dominant}:{tidy[dominant]} (R:{tidy[S.RUNNING]}/{total})"


def status_count(counts: Mapping[str, int]) -> dict[str, int]:
    """The source document's StatusCountInfo."""
    tidy = counts_by_status(counts)
    return {"countTotal": sum(tidy.values())} | {f"count{status}": number for status, number in tidy.items()}


def _valid(check: Any) -> AfterValidator:
    """A check that raises Refused, as a validator: pydantic wants ValueError."""

    def validate(text: str) -> str:
        try:
            return str(check(text))
        except Refused as refused:
            raise ValueError(f"{refused.message}; {refused.hint}" if refused.hint else refused.message) from refused

    return AfterValidator(validate)


Name = Annotated[str, _valid(check_name)]
Csp = Annotated[str, _valid(check_csp)]
Text = Annotated[str, Field(min_length=1, max_length=200)]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SubGroup(_Spec):
    """VMs that are alike: one spec, one image, one place."""

    name: Name
    subGroupSize: int = Field(1, ge=1, le=MAX_VMS_PER_MCI)
    csp: Csp
    region: Name
    specId: Text = "small"
    imageId: Text = "ubuntu-24.04"
    label: dict[Text, Text] = Field(default={}, max_length=50)


class MciSpec(_Spec):
    """What `mci create` takes from a file."""

    description: str = Field("", max_length=500)
    label: dict[Text, Text] = Field(default={}, max_length=50)
    subGroups: list[SubGroup] = Field(min_length=1, max_length=MAX_SUBGROUPS)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [group.name for group in self.subGroups]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"subgroup names must differ: {', '.join(twice)} occurs more than once")
        for group in self.subGroups:
            if len(f"{group.name}-{group.subGroupSize}") > MAX_NAME:
                raise ValueError(f"subgroup name {group.name} is too long: VMs are named {group.name}-N")
        if (total := sum(group.subGroupSize for group in self.subGroups)) > MAX_VMS_PER_MCI:
            raise ValueError(f"{total} VMs are too many: the limit is {MAX_VMS_PER_MCI} in one MCI")
        return self


def births(path: str, spec: MciSpec) -> Iterator[NewObject]:
    """The VMs that the spec asks for, named `{subgroup}-{n}` from 1."""
    for group in spec.subGroups:
        place = placement(group.csp, group.region)
        order = {"subGroup": group.name, "specId": group.specId, "imageId": group.imageId, "label": group.label}
        for index in range(1, group.subGroupSize + 1):
            yield NewObject(path=f"{path}:vm:{group.name}-{index}", kind="vm", placement=place, spec=order)


# fmt: off
_CONTROL = (
    Verb("suspend",   CONTROL_VMS, "Stop VMs without giving them up."),
    Verb("resume",    CONTROL_VMS, "Start suspended VMs again."),
    Verb("reboot",    CONTROL_VMS, "Restart running VMs."),
    Verb("terminate", CONTROL_VMS, "End VMs for good."),
)
# fmt: on

KINDS = (
    Kind(
        table=MCI,
        scope=("ns", "mci"),
        verbs=(
            Verb("create", CREATE_MCI, "Create a group of VMs across clouds.", MciSpec),
            *_CONTROL,
            Verb("refine", REMOVE_VMS, "Remove failed and undefined VMs, here and in the cloud."),
            Verb("delete", REMOVE_VMS, "Terminate all VMs and remove every record of the group."),
        ),
        help="Groups of VMs across clouds.",
        member="vm",
        births=births,
        aggregate=aggregate,
    ),
    Kind(table=VM, scope=("ns", "mci", "vm"), verbs=_CONTROL, help="Single VMs of a group."),
)
