"""What people send with an action."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from domain.fields import Name, validator
from domain.model import Model
from domain.paths import check_name

DEFAULT_RETENTION_DAYS = 7.0
MACHINE_MEMORY, NODE_MEMORY = 1, 64  # GiB, if nothing is said


def _machine(text: str) -> str:
    """`dev/db`: a machine of the same account."""
    names = text.split("/")
    if len(names) != 2:
        raise ValueError("a machine is written cloudspace/machine, such as dev/db")
    return "/".join(map(check_name, names))


MachineName = Annotated[str, validator(_machine)]
Days = Annotated[float, Field(ge=0, le=3650)]


class NewObjectSpec(Model):
    """What a new object is given. It is kept whole, with what was not said."""

    description: str = Field("", max_length=500, description="What it is for.")


class NewAccount(NewObjectSpec):
    """A new account, and how long what is deleted in it can be restored."""

    retention_days: Days = Field(DEFAULT_RETENTION_DAYS, description="How long its objects stay in the recycle bin.")


class DeployableSpec(NewObjectSpec):
    """What can be kept as a record alone, until it is deployed."""

    virtual: bool = Field(False, description="Only keep the record; deploy makes it real.")


class NewCloudspace(DeployableSpec):
    """A new cloudspace: a network with its firewall."""


class NewMachine(DeployableSpec):
    """A new machine: its image, its memory, and where it should run."""

    image: Name = Field(description="The image that it starts from.")
    memory: int = Field(MACHINE_MEMORY, ge=1, le=4096, description="GiB of its node's memory.")
    node: Name | None = Field(None, description="Where it should run; else where there is most room.")


class NewDisk(DeployableSpec):
    """A new disk, by its size."""

    size: int = Field(10, ge=1, le=65_536, description="GiB.")


class NewImage(DeployableSpec):
    """A new image for machines to start from, by its size."""

    size: int = Field(2, ge=1, le=65_536, description="GiB.")


class NewNode(NewObjectSpec):
    """A new node, and how much memory it has for machines."""

    memory: int = Field(NODE_MEMORY, ge=1, le=65_536, description="GiB that machines may use.")


class Delete(Model):
    """Into the recycle bin, and for how long."""

    retention_days: Days | None = Field(None, description="How long it stays in the recycle bin.")


class DeleteAll(Delete):
    """Into the recycle bin; with `cascade`, what lives in it as well."""

    cascade: bool = Field(False, description="With everything that lives in it.")


class Destroy(Model):
    """For good; with `bin`, only what still lies in the recycle bin under that number."""

    bin: int | None = Field(None, description="Only if it is in the recycle bin under this number.")


class DestroyAll(Destroy):
    """For good; with `cascade`, what lives in it as well."""

    cascade: bool = Field(False, description="With everything that lives in it.")


class Migrate(Model):
    """To another node: the one that is named, or where there is most room."""

    node: Name | None = Field(None, description="Where to; else where there is most room.")


class DiskChoice(Model):
    """Which disk a machine gets or gives up."""

    disk: Name = Field(description="A disk of the same account.")


class AddDisk(DiskChoice):
    """A disk that is made and attached at once."""

    size: int = Field(10, ge=1, le=65_536, description="GiB.")


class MachineChoice(Model):
    """Which machine a disk is attached to."""

    machine: MachineName = Field(description="A machine of the same account, such as dev/db.")


class Maintain(Model):
    """What becomes of a node's machines."""

    mode: Literal["move", "stop"] = Field("move", description="Move its machines, or stop them.")
