"""Queries of the inventory, and whether a worker is there to answer. Each is a standalone activity that only reads."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

from pydantic import BaseModel
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import ActivityFailureError, Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, TimeoutError

from activities.refusals import refusal_in
from client.errors import NoWorker, TooMuch, Unanswered
from domain import wire
from domain.model import HistoryLine, HistoryView, ObjectsView, ObjectView, Query

T = TypeVar("T", bound=BaseModel)

READ_SECONDS = 10
PAGE = 500  # objects in one answer: Temporal takes no more than 2 MB
POLLERS_TRUSTED = 10  # once seen, a worker is believed in for so long: asking costs a tenth of a request
POLLERS_SECONDS = 2  # a worker that has just been started is not seen at once


class WorkerQueries:
    """Reads the inventory through Temporal, with a worker's help."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._polled_until: dict[str, float] = {}
        self._looking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(
        self,
        activity: str,
        query: BaseModel,
        answer: type[T],
        seconds: float = READ_SECONDS,
        queue: str = wire.ACTIONS_QUEUE,
    ) -> T:
        """Run a read as a standalone activity. Refused by the worker: Refused here.

        A worker that is frozen or just died may have swallowed the question: it is asked once more.
        """
        await self.someone_polls(queue)
        asked = partial(
            self.client.execute_activity,
            activity,
            query,
            task_queue=queue,
            result_type=answer,
            schedule_to_close_timeout=timedelta(seconds=seconds),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=2)),
        )
        try:
            found: T = await _once_more(lambda: asked(id=f"{activity}-{uuid.uuid4().hex[:12]}"))
            return found
        except ActivityFailureError as failure:
            if (refusal := refusal_in(failure.cause)) is not None:
                raise refusal.error() from failure
            if isinstance(failure.cause, ApplicationError) and failure.cause.type == wire.TOO_LARGE:
                raise TooMuch(f"the answer is too large: {failure.cause.message}") from failure
            raise Unanswered(f"the worker could not answer: {failure.cause}") from failure

    async def get(self, path: str) -> ObjectView:
        """One object; Refused if there is none."""
        return await self.read(wire.READ_OBJECT, Query(path=path), ObjectView)

    async def history(self, path: str, limit: int = 100) -> list[HistoryLine]:
        """The last changes of an object, oldest first."""
        return (await self.read(wire.READ_HISTORY, Query(path=path, limit=limit), HistoryView)).lines

    async def everything(self, kind: str, prefix: str = "") -> AsyncIterator[ObjectView]:
        """All objects of a kind at or below a path, a page at a time."""
        after, size = "", PAGE
        while True:
            query = Query(kind=kind, path=prefix, after=after, limit=size)
            try:
                page = (await self.read(wire.READ_OBJECTS, query, ObjectsView)).objects
            except TooMuch:
                if size == 1:
                    raise
                size = max(1, size // 8)
                continue
            for found in page:
                yield found
            if len(page) < size:
                return
            after = page[-1].path

    async def someone_polls(self, queue: str) -> None:
        """NoWorker if nobody would take our work: better than waiting for ever."""
        clock = asyncio.get_running_loop().time
        async with self._looking[queue]:  # many who ask at once look once
            if clock() < self._polled_until.get(queue, 0):
                return
            deadline = clock() + POLLERS_SECONDS
            while not await self.pollers(queue):
                if clock() > deadline:
                    raise NoWorker(queue)
                await asyncio.sleep(0.1)
            self._polled_until[queue] = clock() + POLLERS_TRUSTED

    async def pollers(self, queue: str) -> int:
        """How many workers Temporal has seen at a queue lately."""
        return len(await self.identities(queue))

    async def identities(self, queue: str, seconds: float = math.inf) -> list[str]:
        """The workers that Temporal has seen at a queue within that time, by what they call themselves."""
        workflows, activities = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        polled = workflows if queue == wire.ACTIONS_QUEUE else activities
        request = DescribeTaskQueueRequest(
            namespace=self.client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=polled,
        )
        found = (await self.client.workflow_service.describe_task_queue(request, retry=True)).pollers
        return [each.identity for each in found if time.time() - each.last_access_time.seconds < seconds]


async def _once_more(ask: Callable[[], Awaitable[T]]) -> T:
    try:
        return await ask()
    except ActivityFailureError as failure:
        if not isinstance(failure.cause, TimeoutError) or failure.cause.cause:  # a cause: somebody tried, and failed
            raise
    return await ask()
