"""A worker whose polling ends by itself ends its process, and says why."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from tests.patience import PATIENCE
from tests.test_platform.site import Site
from workers.polling import PollingStopped, WorkerGroup

BROKEN = "broken"


@activity.defn
async def nothing() -> None: ...


def end_in_core(worker: Worker) -> None:
    """The pollers of the SDK's core end: its poll loop in Python returns, and tells nobody."""
    worker._bridge_worker.initiate_shutdown()


def raise_in_loop(worker: Worker) -> None:
    assert worker._activity_worker
    worker._activity_worker._fail_worker_exception_queue.put_nowait(ValueError("a bug in the poll loop"))


def cancel_loop(_worker: Worker) -> None:
    """Somebody cancels a task that is not his own."""
    find_loop()[0].cancel()


def find_loop() -> list[asyncio.Task[object]]:
    found = []
    for task in asyncio.all_tasks():
        frame = getattr(task.get_coro(), "cr_frame", None)
        if frame and frame.f_code.co_name == "poll_until_stopped" and frame.f_locals["queue"] == BROKEN:
            found.append(task)
    return found


async def wait_in_group(group: WorkerGroup, then: Callable[[], None]) -> None:
    async with asyncio.timeout(PATIENCE), group.run_workers():
        while not find_loop():
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)  # the loops poll
        then()
        await asyncio.Event().wait()


@pytest.mark.parametrize("end", [end_in_core, raise_in_loop, cancel_loop])
async def test_the_block_ends_with_the_reason_however_the_polling_ended(
    client: Client, end: Callable[[Worker], None], ns: str
) -> None:
    healthy, broken = (Worker(client, task_queue=f"{ns}-{which}", activities=[nothing]) for which in ("one", "two"))
    group = WorkerGroup({"healthy": healthy, BROKEN: broken})
    with pytest.raises(PollingStopped, match="polling of the queue broken"):
        await wait_in_group(group, lambda: end(broken))
    assert healthy.is_shutdown
    assert group.failure


async def test_a_group_that_is_told_to_stop_has_not_failed(client: Client, ns: str) -> None:
    worker = Worker(client, task_queue=ns, activities=[nothing])
    group = WorkerGroup({ns: worker})
    async with group.run_workers():
        pass
    assert worker.is_shutdown
    assert group.failure is None


async def test_the_reason_is_kept_where_the_task_that_opened_the_group_is_over(client: Client, ns: str) -> None:
    """As in a fixture: to cancel that task tells nobody."""
    worker = Worker(client, task_queue=ns, activities=[nothing])
    group = WorkerGroup({ns: worker})
    opened = group.run_workers()
    await asyncio.create_task(opened.__aenter__())
    end_in_core(worker)
    async with asyncio.timeout(PATIENCE):
        while group.failure is None:
            await asyncio.sleep(0.01)
    await opened.__aexit__(None, None, None)
    assert "ended by itself" in str(group.failure)


@pytest.mark.parametrize("how", ["drains", "hangs"])
async def test_a_worker_process_that_is_polling_no_longer_exits_with_an_error(site: Site, how: str) -> None:
    """Also if something that hangs holds up its drain."""
    variables = os.environ | site.environment | {"DEAF_WORKER": how, "RATCHET_DRAIN": "0"}
    log = site.home / "deaf.log"
    process = await site.forkserver.start([], variables, log, "tests.test_platform.deaf")
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 1
    said = log.read_text()
    assert "takes no work any more" in said
    assert ("drained" in said) is (how == "drains")
