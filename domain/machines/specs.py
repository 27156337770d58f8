"""The specs of the machine family's actions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from domain.machines.sizes import SIZE_OF_NAME
from domain.model import FrozenModel
from domain.paths import check_name
from domain.validation import Name, as_pydantic_validator

DEFAULT_RETENTION_DAYS = 7.0
MACHINE_MEMORY, NODE_MEMORY = 1, 64  # GiB, if nothing is said
MACHINE_VCPUS = 1


def _check_machine_name(text: str) -> str:
    """Checks the form `cloudspace/machine`, such as `dev/db`."""
    names = text.split("/")
    if len(names) != 2:
        raise ValueError("a machine is written cloudspace/machine, such as dev/db")
    return "/".join(map(check_name, names))


MachineName = Annotated[str, as_pydantic_validator(_check_machine_name)]
Days = Annotated[float, Field(ge=0, le=3650)]


class NewObjectSpec(FrozenModel):
    """Base of the specs of new objects. They are stored whole, with their defaults."""

    description: str = Field("", max_length=500, description="What it is for.")


class NewAccountSpec(NewObjectSpec):
    """The spec of `account create`: the retention of its recycle bin."""

    example = {"description": "the shop"}

    retention_days: Days = Field(DEFAULT_RETENTION_DAYS, description="How long its objects stay in the recycle bin.")


class DeployableSpec(NewObjectSpec):
    """Base of the specs of objects that can exist as a record only, until they are deployed."""

    virtual: bool = Field(False, description="Store the record only; deploy creates the real object.")


class NewCloudspaceSpec(DeployableSpec):
    """The spec of `cloudspace create`: a network with its firewall."""

    example = {"description": "its web servers"}


class NewMachineSpec(DeployableSpec):
    """The spec of `machine create`: its image, size and node."""

    example = {"image": "ubuntu", "memory": 2}

    image: Name = Field(description="The image that it starts from.")
    size: Literal["", "small", "medium", "large", "xlarge", "2xlarge"] = Field(
        "", description="A size of the catalogue, instead of vcpus and memory."
    )
    vcpus: int = Field(MACHINE_VCPUS, ge=1, le=256, description="Virtual CPUs.")
    memory: int = Field(MACHINE_MEMORY, ge=1, le=4096, description="GiB of its node's memory.")
    node: Name | None = Field(None, description="The node to run on; by default the one with most free memory.")

    @model_validator(mode="before")
    @classmethod
    def _apply_size(cls, raw: Any) -> Any:
        """Takes vCPUs and memory from the size. The stored spec has all three, and is read as it was written."""
        named = raw.get("size") if isinstance(raw, dict) else None
        size = SIZE_OF_NAME.get(named) if isinstance(named, str) else None
        if size is None:
            return raw
        numbers = {"vcpus": size.vcpus, "memory": size.memory}
        if wrong := [name for name, number in numbers.items() if raw.get(name, number) != number]:
            raise ValueError(f"the size {size.name} has {numbers[wrong[0]]} {wrong[0]}, not {raw[wrong[0]]}")
        return raw | numbers


class NewDiskSpec(DeployableSpec):
    """The spec of `disk create`: its size."""

    example = {"size": 10}

    size: int = Field(10, ge=1, le=65_536, description="GiB.")


class NewImageSpec(DeployableSpec):
    """The spec of `image create`: its size."""

    example = {"size": 10}

    size: int = Field(2, ge=1, le=65_536, description="GiB.")


class NewNodeSpec(NewObjectSpec):
    """The spec of `node create`: its memory for machines."""

    example = {"memory": 64}

    memory: int = Field(NODE_MEMORY, ge=1, le=65_536, description="GiB that machines may use.")


class DeleteSpec(FrozenModel):
    """The spec of `delete`, which moves an object to the recycle bin: for how long."""

    example = {"retention_days": 7}

    retention_days: Days | None = Field(None, description="How long it stays in the recycle bin.")


class CascadingDeleteSpec(DeleteSpec):
    """The spec of `delete` of an object with contents; with `cascade`, they go along."""

    example = {"cascade": True}

    cascade: bool = Field(False, description="Together with its contents.")


class DestroySpec(FrozenModel):
    """The spec of `destroy`; with `bin`, only if the object is still in the recycle bin by that deletion."""

    bin: int | None = Field(None, description="Only the recycle bin's entry with this number.")


class CascadingDestroySpec(DestroySpec):
    """The spec of `destroy` of an object with contents; with `cascade`, they go along."""

    example = {"cascade": True}

    cascade: bool = Field(False, description="Together with its contents.")


class MigrateSpec(FrozenModel):
    """The spec of `machine migrate`: the node, or by default the one with the most room."""

    node: Name | None = Field(None, description="The target node; by default the one with most free memory.")


class DiskNameSpec(FrozenModel):
    """The spec of machine actions on a disk: which disk to attach or detach."""

    example = {"disk": "data"}

    disk: Name = Field(description="A disk of the same account.")


class SnapshotNameSpec(FrozenModel):
    """The spec of machine actions on a snapshot: its name."""

    example = {"snapshot": "before-upgrade"}

    snapshot: Name = Field(description="The snapshot's name; each machine has its own.")


class AddDiskSpec(DiskNameSpec):
    """The spec of `machine add-disk`: the disk to create and attach."""

    example = {"disk": "data", "size": 10}

    size: int = Field(10, ge=1, le=65_536, description="GiB.")


class MachineNameSpec(FrozenModel):
    """The spec of disk actions on a machine: which machine to attach to."""

    example = {"machine": "dev/db"}

    machine: MachineName = Field(description="A machine of the same account, such as dev/db.")


class MaintainSpec(FrozenModel):
    """The spec of `node maintain`: whether its machines are moved or stopped."""

    mode: Literal["move", "move-or-stop", "stop"] = Field(
        "move", description="Move its machines; or move what has room elsewhere and stop the rest; or stop all."
    )
