"""Queries while a workflow writes: a replay does the same.

The SDK may complete a task with the result of a local activity before the workflow has it, if the task has a query to
answer. So the server attaches none: `history.maxBufferedQueryCount` is 0.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker

from workers.plugin import temporal_plugin

SOON = timedelta(seconds=60)
SIGNALS, ASKERS, RUNS = 120, 6, 6


@activity.defn
async def write_heard(number: int) -> int:
    await asyncio.sleep(random.random() * 0.005)  # ends at any moment of a query
    return number


@activity.defn
async def write_changed(number: int) -> int:
    return await write_heard(number)


@workflow.defn
class Listener:
    """What it writes next depends on what it has heard by then."""

    def __init__(self) -> None:
        self._heard = 0
        self._changed = self._is_over = False

    @workflow.run
    async def run(self) -> None:
        while not self._is_over:
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: self._heard > 0 or self._changed or self._is_over, timeout=1_000)
            if self._heard:
                self._heard = 0
                await workflow.execute_local_activity(write_heard, 1, start_to_close_timeout=SOON)
            while self._changed:
                self._changed = False
                await workflow.execute_local_activity(write_changed, 1, start_to_close_timeout=SOON)

    @workflow.signal
    def hear(self) -> None:
        self._heard += 1

    @workflow.signal
    def change(self) -> None:
        self._changed = True

    @workflow.signal
    def end(self) -> None:
        self._is_over = True

    @workflow.query
    def heard(self) -> int:
        return self._heard


async def ask_until(handle: WorkflowHandle[Listener, None], over: asyncio.Event) -> None:
    while not over.is_set():
        with suppress(RPCError):
            await handle.query(Listener.heard)


async def run_among_questions(client: Client, queue: str) -> WorkflowHandle[Listener, None]:
    handle, over = await client.start_workflow(Listener.run, id=f"l-{uuid4()}", task_queue=queue), asyncio.Event()
    asking = asyncio.gather(*(ask_until(handle, over) for _ in range(ASKERS)))
    for _ in range(SIGNALS // 2):
        await asyncio.gather(*(handle.signal(random.choice([Listener.hear, Listener.change])) for _ in range(2)))
    over.set()
    await asking
    await handle.signal(Listener.end)
    await handle.result()
    return handle


async def test_a_run_that_was_asked_while_it_wrote_is_replayed(client: Client) -> None:
    queue = f"listeners-{uuid4()}"
    worker = Worker(client, task_queue=queue, workflows=[Listener], activities=[write_heard, write_changed])
    async with worker:
        ended = await asyncio.gather(*(run_among_questions(client, queue) for _ in range(RUNS)))
    replayer = Replayer(workflows=[Listener], plugins=[temporal_plugin()])
    for handle in ended:
        await replayer.replay_workflow(await handle.fetch_history())
