"""Searches clouds for VMs that were ordered, never answered, and whose records are gone.

A cloud may carry out an order late. An order stays on record until the cloud was seen without its VM after the longest
lifetime of an order. A late VM is removed like any orphan.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta

from activities.mci.vms import token_of
from activities.permits import Permits
from domain.errors import ProviderError, Superseded
from domain.healing import Leftover
from domain.limits import CHUNK_VMS
from domain.mci.messages import MciStore, UnansweredOrder
from domain.ports import Cloud, VmFacts, VmOrder, VmState
from domain.wire import split_placement

ANSWER_SECONDS = 30.0  # per call; the next sweep retries a place without an answer


class LateVmSearch:
    """Finds late VMs in each sweep. `life`: the longest time in seconds for which an order may be on its way."""

    def __init__(self, book: MciStore, clouds: Mapping[str, Cloud], permits: Permits, life: float) -> None:
        self._book = book
        self._clouds = clouds
        self._permits = permits
        self._life = timedelta(seconds=life)

    async def search(self, at: datetime, dry_run: bool) -> list[Leftover]:
        """Returns late VMs as leftovers, and deletes orders that are too old to be carried out."""
        places = await self._book.unanswered_places()
        found = await asyncio.gather(*(self._at(place, at, dry_run) for place in places))
        return [each for some in found for each in some]

    async def _at(self, place: str, at: datetime, dry_run: bool) -> list[Leftover]:
        living: list[Leftover] = []
        async for page in self._pages(place):
            try:
                answers = await self._describe(place, page)
            except (ProviderError, Superseded, TimeoutError):
                return living
            seen = list(zip(page, answers, strict=True))
            living += [_late(each, facts) for each, facts in seen if _lives(facts)]
            over = [each for each, facts in seen if not _lives(facts) and each.since + self._life < at]
            if not dry_run:
                await self._book.forget_unanswered(over)
        return living

    async def _pages(self, place: str) -> AsyncIterator[list[UnansweredOrder]]:
        after: UnansweredOrder | None = None
        while page := await self._book.unanswered_page(place, after, CHUNK_VMS):
            yield page
            after = page[-1]

    async def _describe(self, place: str, page: Sequence[UnansweredOrder]) -> Sequence[VmFacts | None]:
        csp, region = split_placement(place)
        orders = [VmOrder(each.path, token_of(each.path, each.generation, "create", 0)) for each in page]
        async with (
            asyncio.timeout(ANSWER_SECONDS),
            self._permits.region(csp, region),
            self._permits.vms(csp, region),
        ):
            return await self._clouds[csp].describe(region, orders)


def _lives(facts: VmFacts | None) -> bool:
    return facts is not None and facts.state is not VmState.TERMINATED


def _late(each: UnansweredOrder, facts: VmFacts | None) -> Leftover:
    assert facts
    path = f"{each.path}:orphan:{facts.cloud_id}"
    return Leftover(path=path, action="create", since=each.since, spec={"place": each.place})
