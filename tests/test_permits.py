"""Permits: caps hold, waiting is first come first served, and a cancelled waiter takes nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.permits import PermitPool
from domain.limits import CloudCaps, ConcurrencyCaps
from tests.localpermits import LocalPermitStore
from tests.patience import PATIENCE

CAPS = ConcurrencyCaps({"aws": CloudCaps(regions=2, vms=3), "other": CloudCaps(regions=1, vms=1)})


@pytest.fixture
def permits() -> PermitPool:
    return PermitPool(CAPS, LocalPermitStore())


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(30):
        await asyncio.sleep(0)


class Visitor:
    """A task that enters, stays until it is told to go, and can tell whether it is inside."""

    def __init__(self, permit: object) -> None:
        self._permit = permit
        self._go = asyncio.Event()
        self.inside = False
        self.task = asyncio.create_task(self._visit())

    async def _visit(self) -> None:
        async with self._permit:  # type: ignore[attr-defined]
            self.inside = True
            try:
                await self._go.wait()
            finally:
                self.inside = False

    async def leave(self) -> None:
        self._go.set()
        await self.task

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def leave_all(*visitors: Visitor) -> None:
    for visitor in visitors:
        visitor._go.set()
    await asyncio.gather(*(visitor.task for visitor in visitors))


async def test_no_more_vms_than_the_cap_are_inside_at_once(permits: PermitPool) -> None:
    visitors = [Visitor(permits.take_vm_slots("aws", "r1")) for _ in range(5)]
    await settle()
    assert [visitor.inside for visitor in visitors] == [True, True, True, False, False]
    assert permits.slots_in_use() == {"aws/r1": 3}
    await leave_all(*visitors)
    assert permits.slots_in_use() == {}


async def test_each_region_has_vm_slots_of_its_own(permits: PermitPool) -> None:
    visitors = [Visitor(permits.take_vm_slots("aws", region, 3)) for region in ("r1", "r2")]
    await settle()
    assert all(visitor.inside for visitor in visitors)
    await leave_all(*visitors)


async def test_a_small_wish_does_not_overtake_a_big_one(permits: PermitPool) -> None:
    first = Visitor(permits.take_vm_slots("aws", "r1", 2))
    await settle()
    big, small = Visitor(permits.take_vm_slots("aws", "r1", 3)), Visitor(permits.take_vm_slots("aws", "r1", 1))
    await settle()
    assert not big.inside
    assert not small.inside, "one slot is free, but the big one was first"
    await first.leave()
    await settle()
    assert big.inside
    assert not small.inside
    await leave_all(big, small)


@pytest.mark.parametrize("n", [0, -1, 4])
async def test_a_wish_that_can_never_be_met_is_an_error_not_a_hang(permits: PermitPool, n: int) -> None:
    with pytest.raises(ValueError, match="the cap is 3"):
        permits.take_vm_slots("aws", "r1", n)


async def test_no_more_different_regions_than_the_cap_are_active_at_once(permits: PermitPool) -> None:
    visitors = [Visitor(permits.take_region_permit("aws", region)) for region in ("r1", "r2", "r3")]
    await settle()
    assert [visitor.inside for visitor in visitors] == [True, True, False]
    await visitors[0].leave()
    await settle()
    assert visitors[2].inside
    await leave_all(*visitors[1:])


async def test_an_active_region_is_entered_freely_while_nobody_waits(permits: PermitPool) -> None:
    visitors = [Visitor(permits.take_region_permit("aws", region)) for region in ("r1", "r2", "r1", "r2", "r1")]
    await settle()
    assert all(visitor.inside for visitor in visitors)
    await leave_all(*visitors)


async def test_a_waiting_region_is_not_starved_by_work_in_the_active_ones(permits: PermitPool) -> None:
    active = [Visitor(permits.take_region_permit("aws", region)) for region in ("r1", "r2")]
    await settle()
    waiting, late = Visitor(permits.take_region_permit("aws", "r3")), Visitor(permits.take_region_permit("aws", "r1"))
    await settle()
    assert not waiting.inside
    assert not late.inside, "r1 is active, but r3 came first"
    await active[0].leave()
    await settle()
    assert waiting.inside
    assert not late.inside
    await active[1].leave()
    await settle()
    assert late.inside
    await leave_all(waiting, late)


async def test_clouds_do_not_share_caps_and_an_unknown_cloud_has_those_of_other(permits: PermitPool) -> None:
    full = [Visitor(permits.take_region_permit("aws", region)) for region in ("r1", "r2")]
    elsewhere = [Visitor(permits.take_region_permit("nimbus", region)) for region in ("r1", "r2")]
    await settle()
    assert [visitor.inside for visitor in elsewhere] == [True, False]
    await leave_all(*full, *elsewhere)


async def test_an_error_inside_gives_the_permit_back(permits: PermitPool) -> None:
    with pytest.raises(RuntimeError):
        async with permits.take_region_permit("aws", "r1"), permits.take_vm_slots("aws", "r1", 3):
            raise RuntimeError
    assert permits.slots_in_use() == {}


async def test_a_cancelled_waiter_makes_room_for_those_behind_it(permits: PermitPool) -> None:
    holder = Visitor(permits.take_vm_slots("aws", "r1", 2))
    await settle()
    big, small = Visitor(permits.take_vm_slots("aws", "r1", 2)), Visitor(permits.take_vm_slots("aws", "r1", 1))
    await settle()
    await big.cancel()
    await settle()
    assert small.inside
    await leave_all(holder, small)
    assert permits.slots_in_use() == {}


async def test_a_waiter_cancelled_in_the_moment_of_its_turn_hands_it_on(permits: PermitPool) -> None:
    holder = permits.take_vm_slots("aws", "r1", 3)
    await holder.__aenter__()
    unlucky, next_one = Visitor(permits.take_vm_slots("aws", "r1", 3)), Visitor(permits.take_vm_slots("aws", "r1", 3))
    await settle()
    await holder.__aexit__()  # does not wait: the turn is the unlucky one's, but it has not run since
    unlucky.task.cancel()
    await settle()
    assert unlucky.task.cancelled()
    assert next_one.inside
    await next_one.leave()
    assert permits.slots_in_use() == {}


STEP = st.tuples(st.sampled_from(["enter", "leave", "cancel", "run"]), st.integers(0, 50), st.integers(1, 3))


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(steps=st.lists(STEP, min_size=20, max_size=60))
def test_no_order_of_entering_leaving_and_cancelling_breaks_a_cap_or_loses_a_permit(
    steps: list[tuple[str, int, int]],
) -> None:
    asyncio.run(_walk(steps))


async def _walk(steps: list[tuple[str, int, int]]) -> None:
    permits, visitors = PermitPool(CAPS, LocalPermitStore()), list[tuple[str, int, Visitor]]()
    for what, which, n in steps:
        if what == "enter":
            region = f"r{which % 3}"
            visitors.append((region, n, Visitor(_Both(permits, region, n))))
        elif what == "run":
            await asyncio.sleep(0)
        elif able := [one for _, _, one in visitors if one.inside is (what == "leave") and not one.task.done()]:
            visitor = able[which % len(able)]
            visitor._go.set() if what == "leave" else visitor.task.cancel()
        _check_caps(visitors)
    for _, _, visitor in visitors:
        visitor._go.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(visitor.task for _, _, visitor in visitors), return_exceptions=True)
        await _everything_is_free_again(permits)


def _check_caps(visitors: list[tuple[str, int, Visitor]]) -> None:
    inside: Counter[str] = Counter()
    for region, n, visitor in visitors:
        inside[region] += n if visitor.inside else 0
    assert max(inside.values(), default=0) <= 3
    assert sum(number > 0 for number in inside.values()) <= 2


async def _everything_is_free_again(permits: PermitPool) -> None:
    assert permits.slots_in_use() == {}
    async with AsyncExitStack() as all_at_once:
        for region in ("new1", "new2"):
            await all_at_once.enter_async_context(permits.take_region_permit("aws", region))
            await all_at_once.enter_async_context(permits.take_vm_slots("aws", region, 3))


class _Both:
    """A region and VMs of it, as the activities hold them."""

    def __init__(self, permits: PermitPool, region: str, n: int) -> None:
        self._permits, self._region, self._n = permits, region, n
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._permits.take_region_permit("aws", self._region))
            await stack.enter_async_context(self._permits.take_vm_slots("aws", self._region, self._n))
            self._stack = stack.pop_all()

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


async def test_ten_thousand_free_slots_are_taken_in_a_fraction_of_a_second(permits: PermitPool) -> None:
    start = time.thread_time()  # what others do on the machine does not count
    for _ in range(10_000):
        async with permits.take_vm_slots("aws", "r1"):
            pass
    assert time.thread_time() - start < 0.5  # it takes 15 ms
