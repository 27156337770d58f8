"""Group commit: calls share transactions, and a failing one breaks no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from domain.errors import StoreUnavailable, Unavailable
from providers.simulated import SimulatedCloud
from store.engine import Database
from tests.test_clouds.kit import PARENT, REGION, create, do, good, orders


class Gate:
    """A database that lets transactions through only when told; counts them; can be made to fail."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.open = asyncio.Event()
        self.reached = asyncio.Event()
        self.transactions = 0
        self.error: Exception | None = None

    async def run_transaction(self, work: Callable[[Any], Any]) -> Any:
        self.transactions += 1
        self.reached.set()
        await self.open.wait()
        if self.error:
            raise self.error
        return await self._database.run_transaction(work)


async def test_calls_that_wait_together_share_a_transaction(database: Database) -> None:
    gate = Gate(database)
    gate.open.set()
    cloud = SimulatedCloud("aws", gate)
    names = [f"vm{number}" for number in range(500)]
    answers = await asyncio.gather(*(do(cloud, "create", order) for order in orders(*names)))
    assert [good([answer]).path for answer in answers] == [f"{PARENT}:vm:{name}" for name in names]
    assert gate.transactions <= 2
    assert cloud.peak_concurrency().vms == {REGION: 500}


async def test_ten_thousand_calls_at_once_are_carried_out_quickly(aws: SimulatedCloud) -> None:
    start = time.process_time()  # what others do on the machine does not count
    await asyncio.gather(*(do(aws, "create", order) for order in orders(*(f"few{n}" for n in range(1_000)))))
    few = time.process_time() - start
    wanted = orders(*(f"vm{number}" for number in range(10_000)))
    start = time.process_time()
    answers = await asyncio.gather(*(do(aws, "create", order) for order in wanted))
    assert time.process_time() - start < max(10, 40 * few)  # it takes 0.5 s; on a slow machine, ten times the few
    assert len({good([answer]).cloud_id for answer in answers}) == 10_000


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), sa.exc.IntegrityError("INSERT", {}, Exception("twice"))])
async def test_a_failed_transaction_makes_its_calls_unavailable_and_the_next_one_works(
    database: Database, error: Exception
) -> None:
    gate = Gate(database)
    gate.open.set()
    gate.error = error
    cloud = SimulatedCloud("aws", gate)
    answers = await asyncio.gather(*(do(cloud, "create", order) for order in orders("a", "b")))
    assert [type(answer) for answer in answers] == [Unavailable] * 2
    with pytest.raises(Unavailable):
        await cloud.describe_vms(REGION, orders("a"))
    gate.error = None
    await create(cloud, "a", "b")


async def test_a_bug_reaches_every_caller_as_it_is(database: Database) -> None:
    gate = Gate(database)
    gate.open.set()
    gate.error = KeyError("bug")
    cloud = SimulatedCloud("aws", gate)
    for one in await asyncio.gather(*(create(cloud, name) for name in "ab"), return_exceptions=True):
        assert isinstance(one, KeyError)


async def test_a_cancelled_caller_does_not_break_the_others(database: Database) -> None:
    gate = Gate(database)
    cloud = SimulatedCloud("aws", gate)
    first = [asyncio.create_task(create(cloud, name)) for name in "ab"]
    await gate.reached.wait()  # these two are in a transaction; the next two wait for the one after it
    second = [asyncio.create_task(create(cloud, name)) for name in "cd"]
    await asyncio.sleep(0)
    first[0].cancel()
    second[0].cancel()
    gate.open.set()
    await asyncio.wait([*first, *second])
    assert [task.cancelled() for task in (*first, *second)] == [True, False, True, False]
    made = {vm.path[-1] for vm in await cloud.list_all_vms()}
    assert made == {"a", "b", "d"}, "what was under way is done, what was queued is not"
    assert cloud.current_concurrency().vms == {}


async def test_close_waits_for_what_is_under_way_and_leaves_no_task(database: Database) -> None:
    before = asyncio.all_tasks()
    gate = Gate(database)
    cloud = SimulatedCloud("aws", gate)
    caller = asyncio.create_task(create(cloud, "a"))
    await gate.reached.wait()
    closing = asyncio.create_task(cloud.close())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.open.set()
    await asyncio.gather(closing, caller)
    left = asyncio.all_tasks() - before  # others share the loop: only the cloud's own count
    assert [task for task in left if "providers/simulated" in str(task.get_coro())] == []
    await cloud.close()


def test_a_loop_that_ends_in_the_middle_leaves_nothing_behind(database: Database) -> None:
    async def interrupted() -> None:
        gate = Gate(database)
        cloud = SimulatedCloud("aws", gate)
        callers = [asyncio.create_task(create(cloud, name)) for name in "ab"]
        await gate.reached.wait()
        assert not any(caller.done() for caller in callers)

    asyncio.run(interrupted())


async def test_peaks_tell_vms_regions_and_reads_at_once(database: Database) -> None:
    gate = Gate(database)
    cloud = SimulatedCloud("aws", gate, bulk=2)
    calls = [
        asyncio.create_task(cloud.perform_orders("create", "r1", orders("a", "b"))),
        asyncio.create_task(cloud.perform_orders("create", "r1", orders("c"))),
        asyncio.create_task(cloud.describe_vms("r2", orders("a", "b"))),
    ]
    await gate.reached.wait()
    now = cloud.current_concurrency()
    assert (now.regions, now.vms, now.reads) == (2, {"r1": 3}, {"r2": 1})
    gate.open.set()
    await asyncio.gather(*calls)
    await cloud.perform_orders("create", "r3", orders("d"))
    assert cloud.current_concurrency().regions == 0
    assert (cloud.peak_concurrency().regions, cloud.peak_concurrency().vms) == (2, {"r1": 3, "r3": 1})


async def test_latency_is_taken_by_every_call_within_its_jitter(database: Database) -> None:
    cloud = SimulatedCloud("aws", database, latency=0.02, jitter=0.5)
    start = time.perf_counter()
    await create(cloud, "a")
    await cloud.describe_vms(REGION, orders("a"))
    await cloud.list_tagged_vms(REGION, PARENT)
    assert time.perf_counter() - start >= 3 * 0.02 * 0.5
