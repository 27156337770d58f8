"""Orphans: VMs in a cloud with a path of ours that no record knows. Every place that can be reached is asked.

A cloud's list and our records are read one after the other, so an action between the two makes orphans of its VMs for
a moment: whatever looks like one is looked for in the cloud once more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial

from temporalio import activity

from activities.books import Places
from activities.fence import Fence, Right
from activities.pages import every
from activities.patience import Patience
from activities.permits import Permits
from activities.pulse import pulse
from domain.errors import ProviderError, Rejected, Superseded, UnknownOutcome, brief
from domain.mci import Status
from domain.mci.messages import (
    READ_ORPHANS,
    TERMINATE_ORPHAN,
    Findings,
    Orphan,
    OrphanQuery,
    Orphans,
    StrayOrder,
)
from domain.model import ObjectView
from domain.paths import name_of, parent_of
from domain.ports import Cloud, Inventory, Order, VmFacts, VmState
from domain.wire import split_placement

NO_RECORD = "none"


class OrphanActivities:
    """One instance per worker process."""

    def __init__(
        self,
        inventory: Inventory,
        clouds: Mapping[str, Cloud],
        permits: Permits,
        fence: Fence,
        patience: Patience,
        places: Places,
    ) -> None:
        self._inventory = inventory
        self._clouds = clouds
        self._permits = permits
        self._fence = fence
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

    @activity.defn(name=TERMINATE_ORPHAN)
    async def terminate_orphan(self, order: StrayOrder) -> Findings:
        """Terminate it wherever it is. Nothing there: done. The action's locks keep its path's own actions away."""
        places = [order.place] if order.place else sorted(set(await self._places()))
        problems: list[str] = []
        async with self._fence.right(order.path, order.epoch) as right:
            for place in places:
                try:
                    await self._end(order, place, right)
                except ProviderError as error:
                    problems.append(f"{place}: {brief(error)}")
        return Findings(problems=problems)

    async def _end(self, order: StrayOrder, place: str, right: Right) -> None:
        csp, region = split_placement(place)
        vm, cloud_id, cloud = parent_of(order.path) or "", name_of(order.path), self._clouds[csp]
        told = Order(vm, f"{order.path}#{order.epoch}", cloud_id, epoch=order.epoch)
        async with self._permits.region(csp, region):
            (facts,) = await self._patience.until_answered(
                partial(cloud.describe, region, [told]), room=lambda: self._permits.vms(csp, region)
            )
            if facts is None or facts.state is VmState.TERMINATED:
                return
            if facts.path != vm:
                raise Rejected(f"{cloud_id} carries the path {facts.path}, not {vm}: left alone")
            await self._patience.until_answered(
                partial(_terminate, cloud, region, told), room=lambda: self._permits.vms(csp, region, 1, right)
            )

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


async def _terminate(cloud: Cloud, region: str, order: Order) -> None:
    (answer,) = await cloud.perform("terminate", region, [order])
    if not isinstance(answer, VmFacts):
        raise answer
    if answer.state is not VmState.TERMINATED:
        raise UnknownOutcome(f"the cloud says that it is {answer.state}")


def _record(facts: VmFacts, record: ObjectView | None, times: int) -> str:
    """What the record of that path says, if the VM is not the record's own; else nothing."""
    if record is None:
        return NO_RECORD
    known = record.info.get("cloud_id")
    if known == facts.cloud_id or (known is None and times == 1):  # the latter is found by its token
        return "" if record.status != Status.TERMINATED else str(record.status)
    return f"{record.status} as {known}" if known else str(record.status)
