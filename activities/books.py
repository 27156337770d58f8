"""Our records of VMs held against the clouds' own books: no orphan, no ghost, no double, and the power as we think."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from activities.pages import every
from domain.errors import ProviderError, Refused, Superseded, brief
from domain.machine import NONE
from domain.mci import OBSERVED, Status
from domain.model import Finding, ObjectView
from domain.ports import Cloud, Inventory, VmFacts, VmState
from domain.wire import split_placement

GONE = ("Terminated", "Failed", "Undefined")  # of these there need be nothing in the cloud
POWERED = (Status.RUNNING, Status.SUSPENDED)  # of these the cloud must say the same

Places = Callable[[], Awaitable[list[str]]]


class CloudBooks:
    """I3 and I7 for VMs. `places`: where VMs may be, whether or not we have a record of any there."""

    def __init__(self, inventory: Inventory, clouds: Mapping[str, Cloud], places: Places) -> None:
        self._inventory = inventory
        self._clouds = clouds
        self._places = places

    async def audit(self, prefix: str) -> tuple[list[Finding], int]:
        """What is wrong at or below a path, and how many VMs the clouds have there."""
        records = {view.path: view async for view in every(self._inventory, "vm", prefix)}
        real: defaultdict[str, list[VmFacts]] = defaultdict(list)
        findings, silent = [], set()
        for place in sorted({*(view.placement for view in records.values()), *await self._places()}):
            try:
                for facts in await self._living(place, prefix):
                    real[facts.path].append(facts)
            except (ProviderError, Superseded) as error:
                silent.add(place)
                findings.append(Finding("I3", place, f"could not be asked: {brief(error)}"))
        findings += [finding for path, some in real.items() for finding in _judge(path, some, records.get(path))]
        findings += [
            Finding("I3", path, f"is {view.status}, but its cloud knows no such VM")
            for path, view in records.items()
            if path not in real and view.status not in GONE and view.placement not in silent
        ]
        findings += [finding async for finding in self._powers(real, records)]
        return findings, sum(map(len, real.values()))

    async def _living(self, place: str, prefix: str) -> list[VmFacts]:
        csp, region = split_placement(place)
        found = await self._clouds[csp].list_tagged(region, prefix)
        return [facts for facts in found if facts.state is not VmState.TERMINATED]

    async def _powers(
        self, real: Mapping[str, list[VmFacts]], records: Mapping[str, ObjectView]
    ) -> AsyncIterator[Finding]:
        """VMs that rest in another state than we say. An action may have come between: so the record is read again."""
        for path, some in real.items():
            record, seen = records.get(path), OBSERVED.get(some[0].state)
            if record is None or len(some) > 1 or seen is None or record.status not in POWERED or seen == record.status:
                continue
            if await self._rests(record):
                yield Finding("I7", path, f"is {record.status}, but {some[0].state} in its cloud")

    async def _rests(self, record: ObjectView) -> bool:
        try:
            now = await self._inventory.get(record.path)
        except Refused:
            return False
        return (now.status, now.epoch, now.target_action) == (record.status, record.epoch, NONE)


def _judge(path: str, real: list[VmFacts], record: ObjectView | None) -> list[Finding]:
    if record is None or record.status == "Terminated":
        what = "terminated" if record else "unknown to us"
        return [Finding("I3", path, f"is {what}, but lives in its cloud as {each.cloud_id}") for each in real]
    if len(real) > 1:
        return [Finding("I3", path, f"has {len(real)} VMs in its cloud: {', '.join(each.cloud_id for each in real)}")]
    told = record.info.get("cloud_id", real[0].cloud_id)
    if told != real[0].cloud_id:
        return [Finding("I7", path, f"is kept as {told}, but its cloud calls it {real[0].cloud_id}")]
    return []
