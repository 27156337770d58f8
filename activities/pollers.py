"""Asks Temporal whether any worker polls a queue. Temporal remembers pollers for some minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

ANSWER_SECONDS = 2.0  # a worker that has just started is not listed at once, and one call may fail
ASK_AGAIN_SECONDS = 0.2
CALL_TIMEOUT = timedelta(seconds=8)  # within the 15 s in which a request is answered


class PollerCheck:
    """Checks queues for activity pollers. `own` are the queues of this process, which need no check."""

    def __init__(self, client: Client, own: Collection[str] = ()) -> None:
        self._client = client
        self._own = own

    async def queues_without_workers(self, queues: Sequence[str]) -> list[str]:
        """Returns queues that no worker has polled lately; none if Temporal does not answer."""
        others = sorted(set(queues).difference(self._own))
        polled = await asyncio.gather(*(self._is_polled(queue) for queue in others))
        return [queue for queue, seen in zip(others, polled, strict=True) if not seen]

    async def _is_polled(self, queue: str) -> bool:
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        clock = asyncio.get_running_loop().time
        until = clock() + ANSWER_SECONDS
        has_answered = False
        while True:
            with suppress(RPCError):
                described = await self._client.workflow_service.describe_task_queue(request, timeout=CALL_TIMEOUT)
                has_answered = True
                if described.pollers:
                    return True
            if clock() > until:
                return not has_answered  # harmless if nobody polls: an order that no worker takes waits
            await asyncio.sleep(ASK_AGAIN_SECONDS)
