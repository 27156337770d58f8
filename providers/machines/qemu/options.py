"""The options of the QEMU hypervisor in the connections file."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from domain.connections import BackendOptions
from domain.errors import Category, Refused
from domain.validation import Name

KVM_DEVICE = Path("/dev/kvm")
AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]  # QEMU has a working folder of its own


class QemuOptions(BackendOptions):
    """`hypervisor: {provider: qemu, folder: …, nodes: […]}`: every node is served by this host."""

    provider: Literal["qemu"]
    folder: AbsolutePath  # of disks, sockets and the ledger
    nodes: tuple[Name, ...] = Field(min_length=1, max_length=100)
    images: dict[Name, AbsolutePath] = {}  # image name -> qcow2 file; machines start from it and never write to it
    program: str = "qemu-system-x86_64"
    image_program: str = "qemu-img"
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"

    @property
    def identity(self) -> str:
        return f"qemu@{self.folder}"

    def choose_accelerator(self) -> str:
        """Returns kvm where this host allows it, and tcg, which emulates, elsewhere."""
        if self.accelerator != "auto":
            return self.accelerator
        return "kvm" if os.access(KVM_DEVICE, os.R_OK | os.W_OK) else "tcg"

    def check_prerequisites(self) -> None:
        """Refuses a host without QEMU, or without the library that speaks to it."""
        for program in (self.program, self.image_program):
            if not shutil.which(program):
                hint = "install it (Debian: apt install qemu-system-x86 qemu-utils), or name another `program`"
                raise Refused(Category.INVALID, f"the hypervisor qemu needs the program {program}", hint)
        if not find_spec("qemu") or not find_spec("qemu.qmp"):
            raise Refused(Category.INVALID, "the hypervisor qemu needs qemu.qmp", "pip install 'ratchet[qemu]'")
