"""Audit of VMs: compares records with the clouds' own lists. Finds orphans, ghosts, duplicates, wrong power states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from sys import intern
from typing import NamedTuple

from activities.pages import list_all
from domain.errors import ProviderError, Refused, Superseded, one_line
from domain.mci import OBSERVED, VmStatus
from domain.model import BrokenPromise, ObjectView
from domain.ports import Cloud, Inventory, VmFacts, VmState
from domain.statetable import NONE
from domain.wire import split_placement

GONE = ("Terminated", "Failed", "Undefined")  # the cloud need not have a VM
POWERED = (VmStatus.RUNNING, VmStatus.SUSPENDED)  # the cloud must report the same

ListPlaces = Callable[[], Awaitable[list[str]]]


class Record(NamedTuple):
    """The compared fields of a VM record; whole records of hundreds of thousands of VMs would not fit in memory."""

    status: str
    epoch: int
    placement: str
    cloud_id: str | None


class VmAudit:
    """Audits I3 and I7 for VMs. `places` lists where VMs may be, with or without records."""

    def __init__(self, inventory: Inventory, clouds: Mapping[str, Cloud], places: ListPlaces) -> None:
        self._inventory = inventory
        self._clouds = clouds
        self._places = places

    async def audit(self, prefix: str) -> tuple[list[BrokenPromise], int]:
        """Returns violations at or below a path, and the number of VMs that the clouds have there."""
        records = {view.path: _record(view) async for view in list_all(self._inventory, "vm", prefix)}
        right: dict[str, Record] = {}  # VMs that match their records so far
        real: defaultdict[str, list[VmFacts]] = defaultdict(list)
        findings, silent = [], set()
        for place in sorted({*(view.placement for view in records.values()), *await self._places()}):
            try:
                for facts in await self._living(place, prefix):
                    path, record = facts.path, records.get(facts.path)
                    if path not in real and record and _as_kept(facts, record):
                        right[path] = records.pop(path)
                        continue
                    if twin := right.pop(path, None):  # a second VM with this path
                        records[path] = twin
                        real[path].append(VmFacts(path, str(twin.cloud_id), facts.state))
                    real[path].append(facts)
            except (ProviderError, Superseded) as error:
                silent.add(place)
                findings.append(BrokenPromise("I3", place, f"could not be asked: {one_line(error)}"))
        findings += [finding for path, some in real.items() for finding in _judge(path, some, records.get(path))]
        findings += [
            BrokenPromise("I3", path, f"is {view.status}, but its cloud knows no such VM")
            for path, view in records.items()
            if path not in real and view.status not in GONE and view.placement not in silent
        ]
        findings += [finding async for finding in self._powers(real, records)]
        return findings, len(right) + sum(map(len, real.values()))

    async def _living(self, place: str, prefix: str) -> list[VmFacts]:
        csp, region = split_placement(place)
        found = await self._clouds[csp].list_tagged(region, prefix)
        return [facts for facts in found if facts.state is not VmState.TERMINATED]

    async def _powers(
        self, real: Mapping[str, list[VmFacts]], records: Mapping[str, Record]
    ) -> AsyncIterator[BrokenPromise]:
        """Yields VMs whose power state differs from a record at rest; the record is read again to exclude an action."""
        for path, some in real.items():
            record, seen = records.get(path), OBSERVED.get(some[0].state)
            if record is None or len(some) > 1 or seen is None or record.status not in POWERED or seen == record.status:
                continue
            if await self._rests(path, record):
                yield BrokenPromise("I7", path, f"is {record.status}, but {some[0].state} in its cloud")

    async def _rests(self, path: str, record: Record) -> bool:
        try:
            now = await self._inventory.get(path)
        except Refused:
            return False
        return (now.status, now.epoch, now.target_action) == (record.status, record.epoch, NONE)


def _record(view: ObjectView) -> Record:
    return Record(intern(view.status), view.epoch, intern(view.placement), view.info.get("cloud_id"))


def _as_kept(facts: VmFacts, record: Record) -> bool:
    """Tells whether the VM matches its record, so that nothing is to report."""
    seen = OBSERVED.get(facts.state)
    powered = seen is None or record.status not in POWERED or seen == record.status
    return record.status != VmStatus.TERMINATED and record.cloud_id == facts.cloud_id and powered


def _judge(path: str, real: list[VmFacts], record: Record | None) -> list[BrokenPromise]:
    if record is None or record.status == "Terminated":
        what = "terminated" if record else "unknown to us"
        return [BrokenPromise("I3", path, f"is {what}, but lives in its cloud as {each.cloud_id}") for each in real]
    if len(real) > 1:
        return [
            BrokenPromise("I3", path, f"has {len(real)} VMs in its cloud: {', '.join(each.cloud_id for each in real)}")
        ]
    told = record.cloud_id
    if told is not None and told != real[0].cloud_id:
        return [BrokenPromise("I7", path, f"is kept as {told}, but its cloud calls it {real[0].cloud_id}")]
    return []
