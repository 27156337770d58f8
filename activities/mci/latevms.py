"""Searches clouds for VMs that were ordered, never answered, and whose records are gone.

A cloud may carry out an order late. An order stays on record until the cloud was seen without its VM after the longest
lifetime of an order. A late VM is removed like any orphan.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta

from activities.mci.vms import order_token
from activities.permits import PermitPool
from domain.errors import ProviderError, Superseded
from domain.healing import Leftover
from domain.limits import VMS_PER_CHUNK
from domain.mci.messages import MciStore, UnansweredOrder
from domain.ports import Cloud, VmFacts, VmOrder, VmState
from domain.wire import split_placement

ANSWER_SECONDS = 30.0  # per call; the next sweep retries a place without an answer


class LateVmSearch:
    """Finds late VMs in each sweep. `life`: the longest time in seconds for which an order may be on its way."""

    def __init__(self, book: MciStore, clouds: Mapping[str, Cloud], permits: PermitPool, life: float) -> None:
        self._store = book
        self._clouds = clouds
        self._permits = permits
        self._life = timedelta(seconds=life)

    async def find_late_vms(self, at: datetime, dry_run: bool) -> list[Leftover]:
        """Returns late VMs as leftovers, and deletes orders that are too old to be carried out."""
        places = await self._store.list_unanswered_places()
        found = await asyncio.gather(*(self._search_place(place, at, dry_run) for place in places))
        return [leftover for some in found for leftover in some]

    async def _search_place(self, place: str, at: datetime, dry_run: bool) -> list[Leftover]:
        living: list[Leftover] = []
        async for page in self._iterate_unanswered_orders(place):
            try:
                answers = await self._describe_vms(place, page)
            except (ProviderError, Superseded, TimeoutError):
                return living
            over: list[UnansweredOrder] = []
            for order, facts in zip(page, answers, strict=True):
                if facts is not None and facts.state is not VmState.TERMINATED:
                    path = f"{order.path}:orphan:{facts.cloud_id}"
                    living.append(Leftover(path=path, action="create", since=order.since, spec={"place": order.place}))
                elif order.since + self._life < at:
                    over.append(order)
            if not dry_run:
                await self._store.forget_unanswered_orders(over)
        return living

    async def _iterate_unanswered_orders(self, place: str) -> AsyncIterator[list[UnansweredOrder]]:
        after: UnansweredOrder | None = None
        while page := await self._store.list_unanswered_orders(place, after, VMS_PER_CHUNK):
            yield page
            after = page[-1]

    async def _describe_vms(self, place: str, page: Sequence[UnansweredOrder]) -> Sequence[VmFacts | None]:
        csp, region = split_placement(place)
        orders = [VmOrder(order.path, order_token(order.path, order.generation, "create", 0)) for order in page]
        async with (
            asyncio.timeout(ANSWER_SECONDS),
            self._permits.take_region_permit(csp, region),
            self._permits.take_vm_slots(csp, region),
        ):
            return await self._clouds[csp].describe_vms(region, orders)
