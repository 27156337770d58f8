"""Our records of VMs held against the clouds' own books: no orphan, no ghost, no double."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from activities.pages import every
from domain.model import Finding, ObjectView
from domain.ports import Cloud, Inventory, VmFacts, VmState
from domain.wire import split_placement

GONE = ("Terminated", "Failed", "Undefined")  # of these there need be nothing in the cloud


class CloudBooks:
    """I3 and I7 for VMs."""

    def __init__(self, inventory: Inventory, clouds: Mapping[str, Cloud]) -> None:
        self._inventory = inventory
        self._clouds = clouds

    async def audit(self, prefix: str) -> tuple[list[Finding], int]:
        """What is wrong at or below a path, and how many VMs the clouds have there."""
        records = {view.path: view async for view in every(self._inventory, "vm", prefix)}
        real: defaultdict[str, list[VmFacts]] = defaultdict(list)
        for place in sorted({view.placement for view in records.values()}):
            csp, region = split_placement(place)
            for facts in await self._clouds[csp].list_tagged(region, prefix):
                if facts.state is not VmState.TERMINATED:
                    real[facts.path].append(facts)
        findings = [finding for path, some in real.items() for finding in _judge(path, some, records.get(path))]
        ghosts = [
            Finding("I3", path, f"is {view.status}, but its cloud knows no such VM")
            for path, view in records.items()
            if path not in real and view.status not in GONE
        ]
        return findings + ghosts, sum(map(len, real.values()))


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
