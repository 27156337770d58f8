"""Admission goes before progress: during a rush of requests no activity is begun; afterwards all are."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import FixedSizeSlotSupplier, Worker, WorkerTuner

from domain.model import Request
from domain.wire import ACTIONS_QUEUE
from tests.patience import PATIENCE, within
from tests.virtualtime import in_virtual_time
from workers import slots
from workers.service import WorkerService
from workers.slots import ActivitySlots, AdmissionRush

SOON = timedelta(seconds=60)
CONTEXT = cast(Any, None)  # the slots do not look at it


def make_rush() -> AdmissionRush:
    return AdmissionRush(asyncio.get_running_loop().time)


def note_late_admissions(rush: AdmissionRush, number: int = slots.RUSH) -> None:
    """That many late ones: as many as it takes came before them, in no time."""
    for waited in (*[timedelta()] * slots.BEFORE_LATE, *[timedelta(seconds=1)] * number):
        rush.note_admission(waited)


@in_virtual_time
async def test_a_slot_is_given_when_the_rush_is_over() -> None:
    loop, rush = asyncio.get_running_loop(), make_rush()
    given = ActivitySlots(rush)
    assert given.try_reserve_slot(CONTEXT), "there is no rush"
    note_late_admissions(rush)
    assert given.try_reserve_slot(CONTEXT) is None
    waiting = asyncio.create_task(given.reserve_slot(CONTEXT))
    await asyncio.sleep(slots.RUSH_SECONDS * 0.9)
    note_late_admissions(rush)
    await asyncio.sleep(slots.RUSH_SECONDS * 0.9)
    assert not waiting.done(), "requests still wait"
    await waiting
    assert loop.time() < slots.RUSH_SECONDS * 2, "nothing was late any more"


@in_virtual_time
async def test_one_late_request_or_as_many_as_come_at_once_are_no_rush() -> None:
    rush = make_rush()
    for number in range(slots.BEFORE_LATE):  # at once; the machine takes a tenth of a second for each
        rush.note_admission(timedelta(seconds=number / 10))
        await asyncio.sleep(0.1)
    assert rush.seconds_left == 0
    await asyncio.sleep(1)
    note_late_admissions(rush, slots.RUSH - 1)
    assert rush.seconds_left == 0
    await asyncio.sleep(slots.RUSH_SECONDS)
    note_late_admissions(rush, 1)
    assert rush.seconds_left == 0, "the two were far from each other"


@in_virtual_time
async def test_a_rush_without_end_does_not_stop_all_progress() -> None:
    loop, rush = asyncio.get_running_loop(), make_rush()

    async def keep_rushing() -> None:
        while True:
            note_late_admissions(rush)
            await asyncio.sleep(slots.RUSH_SECONDS / 2)

    rushing = asyncio.create_task(keep_rushing())
    await asyncio.sleep(0)
    await ActivitySlots(rush).reserve_slot(CONTEXT)
    rushing.cancel()
    assert slots.LONGEST_HOLD <= loop.time() < slots.LONGEST_HOLD + 1


@in_virtual_time
async def test_no_more_slots_than_there_are() -> None:
    given = ActivitySlots(make_rush(), 1)
    assert given.try_reserve_slot(CONTEXT)
    assert given.try_reserve_slot(CONTEXT) is None
    waiting = [asyncio.create_task(given.reserve_slot(CONTEXT)) for _ in range(2)]
    await asyncio.sleep(1)
    assert not any(task.done() for task in waiting)
    for number in (1, 2):
        await asyncio.to_thread(given.release_slot, CONTEXT)  # as the SDK does, in a thread of its own
        await asyncio.wait(waiting, return_when="FIRST_COMPLETED" if number == 1 else "ALL_COMPLETED")
        assert sum(task.done() for task in waiting) == number


async def test_a_worker_does_all_activities_with_one_slot(client: Client) -> None:
    @activity.defn
    async def add_one(number: int) -> int:
        return number + 1

    rush, queue = AdmissionRush(), f"slots-{uuid.uuid4().hex}"
    fixed = FixedSizeSlotSupplier(1)
    tuner = WorkerTuner.create_composite(
        workflow_supplier=fixed,
        activity_supplier=ActivitySlots(rush, 1),
        local_activity_supplier=fixed,
        nexus_supplier=fixed,
    )
    note_late_admissions(rush)
    async with Worker(client, task_queue=queue, activities=[add_one], build_id="slots", tuner=tuner):
        calls = [
            client.execute_activity(add_one, n, id=f"{queue}-{n}", task_queue=queue, start_to_close_timeout=SOON)
            for n in range(5)
        ]
        assert await asyncio.gather(*calls) == [1, 2, 3, 4, 5]


async def test_requests_that_had_to_wait_are_noticed(
    stack: WorkerService, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "RUSH_SECONDS", PATIENCE)  # however slow the machine is
    monkeypatch.setattr(slots, "BEFORE_LATE", 1)

    def forget_admissions() -> None:
        monkeypatch.setattr(stack.rush, "_late", AdmissionRush()._late)
        monkeypatch.setattr(stack.rush, "_admitted", AdmissionRush()._admitted)

    async def ask_late(name: str) -> None:
        request = Request(path=f"ns:slots:mci:{name}", action="suspend")
        late = await client.start_workflow(
            "ControlVms", request, id=request.path, task_queue=ACTIONS_QUEUE, start_delay=timedelta(seconds=3)
        )
        with pytest.raises(WorkflowFailureError):  # there is no such MCI
            await late.result()

    async with within(PATIENCE, "one late request was always taken for a rush"):
        while True:
            forget_admissions()
            await asyncio.gather(ask_late("one"), ask_late("two"))  # the second waits while the first is admitted
            if stack.rush.seconds_left == 0:
                break  # else something of an earlier test was admitted, too
    async with within(PATIENCE, "no rush was noticed"):  # of a pair that a busy machine takes one by one, none is late
        while stack.rush.seconds_left == 0:
            await asyncio.gather(ask_late("three"), ask_late("four"))
