"""How much room a host has within a period, beside what is allocated on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class ResourceSize(NamedTuple):
    """vCPUs, memory and disk: of a host, or of what is allocated on it."""

    vcpus: int
    memory_mb: int
    disk_gb: int

    def multiplied_by(self, number: int) -> ResourceSize:
        return ResourceSize(self.vcpus * number, self.memory_mb * number, self.disk_gb * number)


@dataclass(frozen=True, slots=True)
class Allocation:
    """A whole host or a part of it, allocated from `starts` until just before `ends`."""

    starts: datetime
    ends: datetime
    size: ResourceSize
    whole: bool = False


def count_fitting_instances(
    host: ResourceSize, taken: Iterable[Allocation], starts: datetime, ends: datetime, size: ResourceSize
) -> int:
    """Returns how many instances of this size fit on a host for the whole period beside existing allocations."""
    within = [allocation for allocation in taken if allocation.starts < ends and allocation.ends > starts]
    if any(allocation.whole for allocation in within):
        return 0
    used = peak_usage(within)
    fitting = [max(0, have - gone) // need for have, gone, need in zip(host, used, size, strict=True) if need]
    return min(fitting, default=0)


def peak_usage(taken: Iterable[Allocation]) -> ResourceSize:
    """Returns the highest total allocation at any moment, for vCPUs, memory and disk separately."""
    changes: list[tuple[datetime, int, ResourceSize]] = []
    for allocation in taken:
        changes += [(allocation.starts, 1, allocation.size), (allocation.ends, -1, allocation.size)]
    changes.sort(key=lambda change: (change[0], change[1]))  # at the same moment, ends come before starts
    level, most = [0, 0, 0], [0, 0, 0]
    for _, sign, size in changes:
        level = [now + sign * part for now, part in zip(level, size, strict=True)]
        most = [max(before, now) for before, now in zip(most, level, strict=True)]
    return ResourceSize(*most)
