"""The specs of the MCI actions: of an MCI, and of a change of its size.

They come from users' files: the field names are the source system's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from domain.errors import Category, Refused
from domain.limits import MAX_SUBGROUPS, MAX_VMS_PER_MCI
from domain.model import FrozenModel, NewObject
from domain.paths import MAX_NAME, check_name
from domain.validation import as_pydantic_validator
from domain.wire import SIMULATED, make_placement

MciName = Annotated[str, as_pydantic_validator(check_name), Field(json_schema_extra={"maxLength": MAX_NAME})]
MciText = Annotated[str, Field(min_length=1, max_length=200)]
Labels = Annotated[dict[MciText, MciText], Field(max_length=50, description="Labels to find it by.")]
FailurePolicy = Literal["continue", "rollback", "refine"]


class SubGroup(FrozenModel):
    """VMs that are alike: one spec, one image, one place."""

    name: MciName = Field(description="VMs are named after it: front-1, front-2, and so on.")
    subGroupSize: int = Field(1, ge=1, le=MAX_VMS_PER_MCI, description="How many VMs.")
    connectionName: MciName | None = Field(None, description="A connection, by name; or else csp and region.")
    csp: MciName | None = Field(None, description="The cloud.")
    region: MciName | None = Field(None, description="The cloud's region.")
    provider: MciName | None = Field(
        None, description="The provider of that region; filled in by the workers, or checked if given."
    )
    specId: MciText = Field("small", description="The size of each VM, in the cloud's words.")
    imageId: MciText = Field("ubuntu-24.04", description="What runs on each VM, in the cloud's words.")
    label: Labels = {}

    @model_validator(mode="after")
    def _check_placement(self) -> Self:
        if not self.connectionName and not (self.csp and self.region):
            raise ValueError("say where: a connectionName, or csp and region")
        return self

    @property
    def place(self) -> str:
        """The placement of its VMs; Refused if its connection has not been resolved to a cloud and region."""
        if not (self.csp and self.region):
            raise Refused(Category.INVALID, f"nobody has looked up the connection {self.connectionName}")
        return make_placement(self.csp, self.region, self.provider or "")


class MciSpec(FrozenModel):
    """The spec of `mci create`."""

    example = {"subGroups": [{"name": "front", "subGroupSize": 2, "csp": "gcp", "region": "europe-west3"}]}

    description: str = Field("", max_length=500)
    label: Labels = {}
    option: Literal["", "hold"] = Field("", description="hold: wait for `continue` or `withdraw` before any VM.")
    policyOnPartialFailure: FailurePolicy = Field("continue", description="What to do when some VMs cannot be created.")
    subGroups: list[SubGroup] = Field(min_length=1, max_length=MAX_SUBGROUPS)

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        names = [group.name for group in self.subGroups]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"subgroup names must differ: {', '.join(twice)} occurs more than once")
        for group in self.subGroups:
            check_vm_name_length(group.name, group.subGroupSize)
        if self.vm_count > MAX_VMS_PER_MCI:
            raise ValueError(f"{self.vm_count} VMs are too many: the limit is {MAX_VMS_PER_MCI} in one MCI")
        return self

    @property
    def vm_count(self) -> int:
        return sum(group.subGroupSize for group in self.subGroups)

    def find_group(self, name: str) -> SubGroup:
        """Returns the subgroup of that name; refuses an unknown name, and lists the known ones."""
        for group in self.subGroups:
            if group.name == name:
                return group
        names = ", ".join(group.name for group in self.subGroups)
        raise Refused(Category.INVALID, f"there is no subgroup {name[:80]!r}", f"subgroups are: {names}")

    def with_places(self, connections: Mapping[str, tuple[str, str]], provider: Callable[[str, str], str]) -> MciSpec:
        """Returns a copy with the cloud, region and provider of each place; refuses another provider than that."""
        return self.model_copy(
            update={"subGroups": [_group_with_place(group, connections, provider) for group in self.subGroups]}
        )


class ScaleSpec(FrozenModel):
    """The spec of `mci scale-out` and `mci scale-in`."""

    example = {"subGroup": "front", "count": 1}

    subGroup: MciName = Field(description="The subgroup to change.")
    count: int = Field(1, ge=1, le=MAX_VMS_PER_MCI, description="How many VMs to add or remove.")


def _group_with_place(
    group: SubGroup, connections: Mapping[str, tuple[str, str]], provider: Callable[[str, str], str]
) -> SubGroup:
    csp, region = connections.get(group.connectionName or "", (group.csp or "", group.region or ""))
    serving = provider(csp, region)
    if group.provider and group.provider != serving:
        message = f"{csp}/{region} is served by {serving}, not by {group.provider}"
        raise Refused(Category.INVALID, message, "leave out `provider`, or see: starter connections")
    place = {"csp": csp, "region": region} | ({} if serving == SIMULATED else {"provider": serving})
    return group.model_copy(update=place)


def check_vm_name_length(group: str, highest: int) -> None:
    """Checks that the names of its VMs, `{group}-{n}`, are not too long."""
    if len(f"{group}-{highest}") > MAX_NAME:
        raise ValueError(f"subgroup name {group} is too long: VMs are named {group}-N")


def new_vm_objects(path: str, group: SubGroup, first: int, count: int) -> Iterator[NewObject]:
    """Returns new VMs of a subgroup, named `{subgroup}-{n}` from `first` on. Labels are copied."""
    order = {"subGroup": group.name, "specId": group.specId, "imageId": group.imageId, "label": group.label}
    place = group.place
    for index in range(first, first + count):
        yield NewObject(path=f"{path}:vm:{group.name}-{index}", kind="vm", placement=place, spec=order)
