"""Measures the calls in flight at a simulated cloud; tests compare them with the caps."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Calls in flight per region: the most ever, or the present number."""

    regions: int
    vms: dict[str, int]  # region -> VMs being changed
    reads: dict[str, int]  # region -> status reads
    shared: dict[str, int]  # region -> changes of shared resources


@dataclass(slots=True)
class RegionGauge:
    """Present and peak number of one sort of call in flight, per region."""

    now: Counter[str] = field(default_factory=Counter)
    peak: Counter[str] = field(default_factory=Counter)


class InFlightCounter:
    """Counts calls in flight, per cloud and process; a journal file combines all processes."""

    def __init__(self, csp: str = "", journal: Path | None = None) -> None:
        self._csp = csp
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if journal else None
        self.vms = RegionGauge()  # VMs being changed
        self.reads = RegionGauge()
        self.shared = RegionGauge()  # changes of shared resources
        self._most_regions = 0

    def track(self, gauge: RegionGauge, region: str, size: int = 1) -> InFlightCall:
        """Counts calls of one sort as in flight in a region while the block runs."""
        return InFlightCall(self, gauge, region, size)

    def update_region_peak(self) -> None:
        self._most_regions = max(self._most_regions, self._count_active_regions())

    def write_journal_line(self, region: str, change: int) -> None:
        """Appends a line to the journal by one write, so that lines of processes do not mix."""
        if self._journal is not None:
            line = {"at": time.monotonic(), "pid": os.getpid(), "csp": self._csp, "region": region, "change": change}
            os.write(self._journal, f"{json.dumps(line)}\n".encode())

    def current_concurrency(self) -> Concurrency:
        return Concurrency(
            self._count_active_regions(), dict(self.vms.now), dict(self.reads.now), dict(self.shared.now)
        )

    def peak_concurrency(self) -> Concurrency:
        gauges = (self.vms, self.reads, self.shared)
        return Concurrency(self._most_regions, *(dict(gauge.peak) for gauge in gauges))

    def _count_active_regions(self) -> int:
        return len(self.vms.now.keys() | self.reads.now.keys() | self.shared.now.keys())


class InFlightCall:
    """Context manager of one counted call; a class, as a generator would cost as much as the rest of a call."""

    __slots__ = ("_gauge", "_ledger", "_region", "_size")

    def __init__(self, ledger: InFlightCounter, gauge: RegionGauge, region: str, size: int) -> None:
        self._ledger = ledger
        self._gauge = gauge
        self._region = region
        self._size = size

    def __enter__(self) -> None:
        gauge, region = self._gauge, self._region
        number = gauge.now.get(region, 0) + self._size
        gauge.now[region] = number
        if number > gauge.peak[region]:
            gauge.peak[region] = number
        if number == self._size:  # the first one in this region
            self._ledger.update_region_peak()
        self._ledger.write_journal_line(region, self._size)

    def __exit__(self, *_: object) -> None:
        now, region = self._gauge.now, self._region
        now[region] -= self._size
        if not now[region]:
            del now[region]
        self._ledger.write_journal_line(region, -self._size)
