"""Results are written in groups, and none is lost, whatever ends the work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import cast

import pytest

from activities.landingbuffer import MAX_WAITING, LandingBuffer
from domain.errors import StoreUnavailable
from domain.model import Chunk, TargetLanding
from domain.ports import Inventory
from tests.patience import PATIENCE

CHUNK = Chunk(epoch=1, placement="aws/r", action="suspend", first="a", last="z", count=9)


class Pages:
    """An inventory that remembers what was written together, slowly or not at all."""

    def __init__(self, away: bool = False) -> None:
        self.groups: list[list[str]] = []
        self.away = away

    async def land_targets(self, chunk: Chunk, landings: Sequence[TargetLanding], at: datetime) -> int:
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("away")
        self.groups.append([landing.path for landing in landings])
        return len(landings)


def result_buffer(pages: Pages) -> LandingBuffer:
    return LandingBuffer(cast(Inventory, pages), CHUNK)


async def test_what_comes_together_is_written_together() -> None:
    pages = Pages()
    async with result_buffer(pages) as buffer:
        for n in range(MAX_WAITING + 1):
            buffer.add_landing(TargetLanding(str(n), "Suspended", error="" if n else "no"))
    assert [len(group) for group in pages.groups] == [MAX_WAITING, 1]
    assert (buffer.tally.done, buffer.tally.failed) == (MAX_WAITING, 1)


async def test_what_waits_is_written_after_a_moment_and_not_only_at_the_end() -> None:
    pages = Pages()
    async with result_buffer(pages) as buffer, asyncio.timeout(PATIENCE):
        buffer.add_landing(TargetLanding("one", "Suspended"))
        while not pages.groups:
            await asyncio.sleep(0.01)
        buffer.add_landing(TargetLanding("two", "Suspended"))
    assert pages.groups == [["one"], ["two"]]


async def test_a_cancelled_work_has_its_landings_written() -> None:
    pages, added = Pages(), asyncio.Event()

    async def work() -> None:
        async with result_buffer(pages) as buffer:
            buffer.add_landing(TargetLanding("one", "Suspended"))
            added.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await added.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pages.groups == [["one"]]


@pytest.mark.parametrize("also", [None, ValueError("the work's own")])
async def test_a_store_that_is_away_is_the_error_unless_there_is_one_already(also: Exception | None) -> None:
    async def work() -> None:
        async with result_buffer(Pages(away=True)) as buffer:
            buffer.add_landing(TargetLanding("one", "Suspended"))
            if also:
                raise also

    with pytest.raises(type(also) if also else StoreUnavailable):
        await work()
