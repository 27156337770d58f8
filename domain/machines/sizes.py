"""The catalogue of machine sizes: named pairs of vCPUs and memory, so that clients need not invent numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MachineSize:
    """One size. `number` is its id for clients that know sizes by number; it never changes."""

    number: int
    name: str
    vcpus: int
    memory: int  # GiB
    disks: tuple[int, ...]  # GiB: what its boot disk may have


# fmt: off
SIZES: tuple[MachineSize, ...] = (
    MachineSize(1, "small",   1,  1, (10, 20, 50)),
    MachineSize(2, "medium",  1,  2, (10, 20, 50, 100)),
    MachineSize(3, "large",   2,  4, (10, 20, 50, 100)),
    MachineSize(4, "xlarge",  4,  8, (20, 50, 100, 250)),
    MachineSize(5, "2xlarge", 8, 16, (50, 100, 250, 500)),
)
# fmt: on
SIZE_OF_NAME = {size.name: size for size in SIZES}


def find_size(vcpus: int, memory: int) -> MachineSize | None:
    """Returns the size with these numbers, if the catalogue has one."""
    return next((size for size in SIZES if (size.vcpus, size.memory) == (vcpus, memory)), None)
