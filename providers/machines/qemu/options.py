"""The options of the QEMU hypervisor in the connections file."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyAddress

from domain.connections import BackendOptions
from domain.errors import Category, Refused
from domain.validation import Name

KVM_DEVICE = Path("/dev/kvm")
AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]  # QEMU has a working folder of its own


def _name_nodes(nodes: Any) -> Any:
    return dict.fromkeys(nodes, "") if isinstance(nodes, list | tuple) else nodes


def _check_address(address: str) -> str:
    return str(IPvAnyAddress(address)) if address else ""  # type: ignore[operator]


NodeAddresses = Annotated[
    dict[Name, Annotated[str, AfterValidator(_check_address)]],
    BeforeValidator(_name_nodes),
    Field(min_length=1, max_length=100),
]


class QemuOptions(BackendOptions):
    """`hypervisor: {provider: qemu, folder: …, nodes: […]}`: the nodes of all hosts, and a folder that they share."""

    provider: Literal["qemu"]
    folder: AbsolutePath  # of disks, sockets and the ledger
    nodes: NodeAddresses  # name -> address for migrations; without addresses all are this host
    images: dict[Name, AbsolutePath] = {}  # image name -> qcow2 file; machines start from it and never write to it
    program: str = "qemu-system-x86_64"
    image_program: str = "qemu-img"
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"

    @property
    def identity(self) -> str:
        return f"qemu@{self.folder}"

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(self.nodes)

    def folder_of_object(self, path: str) -> Path:
        """Returns an object's folder. Names have neither slashes nor leading dots."""
        return self.folder.joinpath(*path.split(":"))

    def check_prerequisites(self) -> None:
        """Refuses a host without QEMU, or without the library that speaks to it."""
        for program in (self.program, self.image_program):
            if not shutil.which(program):
                hint = "install it (Debian: apt install qemu-system-x86 qemu-utils), or name another `program`"
                raise Refused(Category.INVALID, f"the hypervisor qemu needs the program {program}", hint)
        if not find_spec("qemu") or not find_spec("qemu.qmp"):
            raise Refused(Category.INVALID, "the hypervisor qemu needs qemu.qmp", "pip install 'ratchet[qemu]'")
