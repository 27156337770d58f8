"""Finds, adopts and terminates orphans: VMs in a cloud that carry a path of ours and that no record knows.

The cloud's list and the records are read one after the other, so a concurrent action can make VMs look like orphans:
candidates are checked in the cloud a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping
from functools import partial

from temporalio import activity

from activities.fence import Fence, OrderRight
from activities.heartbeat import heartbeat
from activities.mci.audit import ListPlaces
from activities.mci.vms import token_of
from activities.pages import list_all
from activities.permits import Permits
from activities.retry import ProviderRetry
from domain.errors import ProviderError, Rejected, Superseded, UnknownOutcome, one_line
from domain.limits import CHUNK_VMS
from domain.mci import OBSERVED, VmStatus
from domain.mci.messages import (
    Findings,
    Orphan,
    OrphanQuery,
    Orphans,
)
from domain.mci.strays import Identified, StrayOrder
from domain.model import ObjectView
from domain.paths import name_of, parent_of
from domain.ports import Cloud, Inventory, VmFacts, VmOrder, VmState
from domain.wire import split_placement

NO_RECORD = "none"


class OrphanActivities:
    """Activities on orphans. One instance per worker process."""

    def __init__(
        self,
        inventory: Inventory,
        clouds: Mapping[str, Cloud],
        permits: Permits,
        fence: Fence,
        patience: ProviderRetry,
        places: ListPlaces,
    ) -> None:
        self._inventory = inventory
        self._clouds = clouds
        self._permits = permits
        self._fence = fence
        self._patience = patience
        self._places = places

    @activity.defn
    async def read_orphans(self, query: OrphanQuery) -> Orphans:
        """Returns a page of orphans, place by place; `after` is where the next page begins."""
        found: list[Orphan] = []
        silent: list[str] = []
        async with heartbeat():
            for place in sorted(set(await self._places())):
                if place < query.after.place:
                    continue
                try:
                    there = await self._orphans(place, query.path)
                except (ProviderError, Superseded, TimeoutError) as error:
                    silent.append(f"{place}: {one_line(str(error) or 'no answer in time', 200)}")
                    continue
                found += [orphan for orphan in there if orphan.key > query.after.key]
                if len(found) > query.limit:
                    page = found[: query.limit]
                    return Orphans(orphans=page, silent=silent, after=page[-1])
        return Orphans(orphans=found, silent=silent)

    @activity.defn
    async def terminate_orphan(self, order: StrayOrder) -> Findings:
        """Terminates an orphan in its place, or in all places. A VM that is gone counts as terminated."""
        places = [order.place] if order.place else sorted(set(await self._places()))
        problems: list[str] = []
        async with self._fence.right(order.path, order.epoch) as right:
            for place in places:
                try:
                    await self._end(order, place, right)
                except ProviderError as error:
                    problems.append(f"{place}: {one_line(error)}")
        return Findings(problems=problems)

    @activity.defn
    async def identify_orphan(self, order: StrayOrder) -> Identified:
        """Checks that the record may adopt the VM: it carries the path, rests, and the record has no other VM."""
        csp, region = split_placement(order.place)
        vm, cloud_id = parent_of(order.path) or "", name_of(order.path)
        asked = [VmOrder(vm, f"{order.path}#{order.epoch}", one) for one in (cloud_id, order.own) if one]
        try:
            async with heartbeat(), self._permits.region(csp, region):
                found, *own = await self._patience.call_with_retry(
                    partial(self._clouds[csp].describe, region, asked), room=lambda: self._permits.vms(csp, region)
                )
        except ProviderError as error:
            return Identified(problem=f"{order.place}: {one_line(error)}")
        if found is None or found.state is VmState.TERMINATED:
            return Identified(problem=f"{cloud_id} is not in {order.place} any more")
        if found.path != vm:
            return Identified(problem=f"{cloud_id} carries the path {found.path}, not {vm}: left alone")
        if found.state not in OBSERVED:
            return Identified(problem=f"{cloud_id} is {found.state}: ask again when it rests")
        if alive := [each for each in own if each and each.state is not VmState.TERMINATED]:
            return Identified(problem=f"{vm} has a VM, {order.own}, which is {alive[0].state}: it must go first")
        return Identified(state=found.state, address=found.address)

    async def _end(self, order: StrayOrder, place: str, right: OrderRight) -> None:
        csp, region = split_placement(place)
        vm, cloud_id, cloud = parent_of(order.path) or "", name_of(order.path), self._clouds[csp]
        told = VmOrder(vm, f"{order.path}#{order.epoch}", cloud_id, epoch=order.epoch)
        async with self._permits.region(csp, region):
            (facts,) = await self._patience.call_with_retry(
                partial(cloud.describe, region, [told]), room=lambda: self._permits.vms(csp, region)
            )
            if facts is None or facts.state is VmState.TERMINATED:
                return
            if facts.path != vm:
                raise Rejected(f"{cloud_id} carries the path {facts.path}, not {vm}: left alone")
            await self._patience.call_with_retry(
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
        records = {view.path: view for group in sorted(groups) async for view in list_all(self._inventory, "vm", group)}
        carried = {facts.path for facts in living}
        own = await self._by_token(place, [view for path, view in records.items() if path in carried])
        return [
            Orphan(path=facts.path, place=place, cloud_id=facts.cloud_id, state=facts.state, record=word)
            for facts in living
            if (word := _record(facts, records.get(facts.path), own))
        ]

    async def _by_token(self, place: str, records: list[ObjectView]) -> set[str]:
        """Returns cloud ids of VMs whose records lack one, because the creation was never answered."""
        csp, region = split_placement(place)
        made = [view for view in records if "cloud_id" not in view.info and "generation" in view.info]
        orders = [VmOrder(view.path, token_of(view.path, view.info["generation"], "create", 0)) for view in made]
        found: set[str] = set()
        for first in range(0, len(orders), CHUNK_VMS):
            async with (
                self._permits.region(csp, region),
                self._permits.vms(csp, region),
                asyncio.timeout(self._patience.call),
            ):
                answers = await self._clouds[csp].describe(region, orders[first : first + CHUNK_VMS])
            found |= {facts.cloud_id for facts in answers if facts}
        return found


async def _terminate(cloud: Cloud, region: str, order: VmOrder) -> None:
    (answer,) = await cloud.perform("terminate", region, [order])
    if not isinstance(answer, VmFacts):
        raise answer
    if answer.state is not VmState.TERMINATED:
        raise UnknownOutcome(f"the cloud says that it is {answer.state}")


def _record(facts: VmFacts, record: ObjectView | None, by_token: Container[str]) -> str:
    """Returns the record's status if the VM is an orphan; an empty string if it is the record's own."""
    if record is None:
        return NO_RECORD
    known = record.info.get("cloud_id")
    if known == facts.cloud_id or (known is None and facts.cloud_id in by_token):
        return "" if record.status != VmStatus.TERMINATED else str(record.status)
    return f"{record.status} as {known}" if known else str(record.status)
