"""Orphans: VMs in a cloud with a path of ours that no record knows. Every place that can be reached is asked.

A cloud's list and our records are read one after the other, so an action between the two makes orphans of its VMs for
a moment: whatever looks like one is looked for in the cloud once more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from temporalio import activity

from activities.books import Places
from activities.pages import every
from activities.patience import Patience
from activities.permits import Permits
from activities.pulse import pulse
from domain.errors import ProviderError, Superseded, brief
from domain.mci import Status
from domain.mci.messages import READ_ORPHANS, Orphan, OrphanQuery, Orphans
from domain.model import ObjectView
from domain.paths import parent_of
from domain.ports import Cloud, Inventory, VmFacts, VmState
from domain.wire import split_placement

NO_RECORD = "none"


class OrphanReading:
    """One instance per worker process."""

    def __init__(
        self, inventory: Inventory, clouds: Mapping[str, Cloud], permits: Permits, patience: Patience, places: Places
    ) -> None:
        self._inventory = inventory
        self._clouds = clouds
        self._permits = permits
        self._patience = patience
        self._places = places

    @activity.defn(name=READ_ORPHANS)
    async def read_orphans(self, query: OrphanQuery) -> Orphans:
        """A page: of the places from the one asked for on, those that fit. `after` is where the next page begins."""
        found: list[Orphan] = []
        silent: list[str] = []
        async with pulse():
            for place in sorted(set(await self._places())):
                if place < query.after.place:
                    continue
                try:
                    there = await self._orphans(place, query.path)
                except (ProviderError, Superseded, TimeoutError) as error:
                    silent.append(f"{place}: {brief(str(error) or 'no answer in time', 200)}")
                    continue
                found += [orphan for orphan in there if orphan.key > query.after.key]
                if len(found) > query.limit:
                    page = found[: query.limit]
                    return Orphans(orphans=page, silent=silent, after=page[-1])
        return Orphans(orphans=found, silent=silent)

    async def _orphans(self, place: str, prefix: str) -> list[Orphan]:
        living = await self._living(place, prefix)
        lost = await self._unknown(place, living)
        if not lost:
            return []
        still = {facts.cloud_id for facts in await self._living(place, prefix)}
        return sorted((orphan for orphan in lost if orphan.cloud_id in still), key=lambda orphan: orphan.key)

    async def _living(self, place: str, prefix: str) -> list[VmFacts]:
        csp, region = split_placement(place)
        async with (
            self._permits.region(csp, region),
            self._permits.vms(csp, region),
            asyncio.timeout(self._patience.call),
        ):
            found = await self._clouds[csp].list_tagged(region, prefix)
        return [facts for facts in found if facts.state is not VmState.TERMINATED]

    async def _unknown(self, place: str, living: list[VmFacts]) -> list[Orphan]:
        groups = {parent_of(facts.path) or "" for facts in living}
        records = {view.path: view for group in sorted(groups) async for view in every(self._inventory, "vm", group)}
        times = Counter(facts.path for facts in living)
        return [
            Orphan(path=facts.path, place=place, cloud_id=facts.cloud_id, state=facts.state, record=word)
            for facts in living
            if (word := _record(facts, records.get(facts.path), times[facts.path]))
        ]


def _record(facts: VmFacts, record: ObjectView | None, times: int) -> str:
    """What the record of that path says, if the VM is not the record's own; else nothing."""
    if record is None:
        return NO_RECORD
    known = record.info.get("cloud_id")
    if known == facts.cloud_id or (known is None and times == 1):  # the latter is found by its token
        return "" if record.status != Status.TERMINATED else str(record.status)
    return f"{record.status} as {known}" if known else str(record.status)
