"""Queries of the inventory, through the gateway or as standalone activities, and the check for polling workers."""

from __future__ import annotations

import asyncio
import copy
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Self, TypeVar

from pydantic import BaseModel
from temporalio.api.enums.v1 import TaskQueueType, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import ActivityFailureError, Client
from temporalio.exceptions import ApplicationError, TimeoutError
from temporalio.service import RPCError

from activities.fairness import tenant_priority
from activities.refusals import refusal_of_error
from activities.retry import READ_RETRY
from client.connect_errors import is_refused_payload, refused_payload_error
from client.errors import AnswerTooLarge, NotPromoted, NoWorker, Unanswered, Unreachable
from client.message_signer import MessageSigner, VouchingMessageSigner
from client.patience import NEVER, PollWatch
from client.reading import GatewayReader, Queries
from domain import wire
from domain.identities import Login
from domain.message import SignedMessage
from domain.model import Request

T = TypeVar("T", bound=BaseModel)
Q = TypeVar("Q", bound=BaseModel)

POLLERS_TRUSTED_SECONDS = 10  # how long a worker counts as polling once seen: the check costs a tenth of a request
VERSIONED = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
POLLERS_SECONDS = 2  # Temporal lists a new worker only after a while
LOOK_TIMEOUT = timedelta(seconds=3)  # of a look while somebody waits, whose answer may come meanwhile


class WorkerQueries(Queries):
    """Reads the inventory: through the gateway of `starter up` if there is one, else through a worker."""

    def __init__(self, client: Client, message_signer: MessageSigner | None = None) -> None:
        self.client = client
        self.gateway: GatewayReader | None = None  # asked first: a read through a worker leaves a line in Temporal
        self.message_signer = message_signer or MessageSigner()
        self._polled_until: dict[str, float] = {}
        self._looking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.poll_watch = PollWatch(self._read_last_poll)

    async def _answer_directly(self, activity: str, query: BaseModel, answer: type[T], seconds: float) -> T | None:
        if self.gateway is None:
            return None
        return await self.gateway.try_read(activity, self.sign_query(activity, query), answer, seconds)

    async def _ask_worker(self, activity: str, query: BaseModel, answer: type[T], seconds: float, queue: str) -> T:
        """Runs the query as a standalone activity.

        It is sent a second time if no answer comes: a frozen or dead worker may have taken the first.
        """
        await self.check_polled(queue)
        asked = partial(
            self.client.execute_activity,
            activity,
            task_queue=queue,
            result_type=answer,
            schedule_to_close_timeout=timedelta(seconds=seconds),
            retry_policy=READ_RETRY,
            priority=tenant_priority(query.path_to_authorize if isinstance(query, SignedMessage) else ""),
        )
        try:
            result: T = await _retry_once(
                lambda: asked(arg=self.sign_query(activity, query), id=f"{activity}-{uuid.uuid4().hex[:12]}")
            )
            if isinstance(result, wire.UnreadableMessage):  # a worker's own client reports instead of raising
                raise Unanswered(f"what the worker answered is refused: {result}")
            return result
        except ActivityFailureError as failure:
            if (refusal := refusal_of_error(failure.cause)) is not None:
                raise refusal.to_error() from failure
            if isinstance(failure.cause, ApplicationError) and failure.cause.type == wire.TOO_LARGE_ERROR_TYPE:
                raise AnswerTooLarge(f"the answer is too large: {failure.cause.message}") from failure
            if is_refused_payload(failure.cause):
                raise refused_payload_error() from failure
            raise Unanswered(f"the worker could not answer: {failure.cause}") from failure

    def sign_query(self, activity: str, query: Q) -> Q:
        """Returns the query with its sender's name and proof; a request has its own."""
        if not isinstance(query, SignedMessage) or (isinstance(query, Request) and query.proof):
            return query
        return self.message_signer.sign(query, activity)

    def acting_for(self, caller: str, login: Login | None = None) -> Self:
        """Returns a copy of this client that speaks for a caller whom this process has authenticated."""
        other = copy.copy(self)
        other.message_signer = VouchingMessageSigner(self.message_signer, caller, login)
        return other

    async def check_polled(self, queue: str) -> None:
        """Raises NoWorker if no worker polls the queue, NotPromoted if none gets new work: better than waiting."""
        clock = asyncio.get_running_loop().time
        async with self._looking[queue]:  # concurrent callers share one check
            if clock() < self._polled_until.get(queue, 0):
                return
            deadline = clock() + POLLERS_SECONDS
            while why := await self._why_not_served(queue):
                if clock() > deadline:
                    raise why
                await asyncio.sleep(0.1)
            self._polled_until[queue] = clock() + POLLERS_TRUSTED_SECONDS

    async def _why_not_served(self, queue: str) -> Unreachable | None:
        described = await describe_queue(self.client, queue)
        if not described.pollers:
            return NoWorker(queue)
        options = [poller.deployment_options for poller in described.pollers]
        versioned = [each for each in options if each.worker_versioning_mode == VERSIONED]
        if queue != wire.ACTIONS_QUEUE or len(versioned) < len(options):
            return None  # a worker without a build gets new work at once
        if described.versioning_info.current_deployment_version.build_id:
            return None
        return NotPromoted(versioned[-1].deployment_name, versioned[-1].build_id)

    async def _read_last_poll(self) -> float:
        """Returns when a worker polled for actions last, by the server's clock; NEVER if none did, or it is away."""
        with suppress(RPCError):
            polls = (await describe_queue(self.client, wire.ACTIONS_QUEUE, LOOK_TIMEOUT)).pollers
            return max((poller.last_access_time.ToMicroseconds() / 1e6 for poller in polls), default=NEVER)
        return NEVER

    async def count_pollers(self, queue: str) -> int:
        """Returns how many workers polled a queue lately."""
        return len(await self.read_poller_identities(queue))

    async def read_poller_identities(self, queue: str, seconds: float = math.inf) -> list[str]:
        """Returns the identities of the workers that polled a queue within that time."""
        pollers = (await describe_queue(self.client, queue)).pollers
        return [poller.identity for poller in pollers if time.time() - poller.last_access_time.seconds < seconds]


async def describe_queue(client: Client, queue: str, give_up: timedelta | None = None) -> DescribeTaskQueueResponse:
    """Returns what Temporal knows of a queue and its pollers: of workflows on the queue of actions, else activities."""
    workflows, activities = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    polled = workflows if queue == wire.ACTIONS_QUEUE else activities
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=polled
    )
    return await client.workflow_service.describe_task_queue(request, retry=not give_up, timeout=give_up)


async def _retry_once(ask: Callable[[], Awaitable[T]]) -> T:
    try:
        return await ask()
    except ActivityFailureError as failure:
        if not isinstance(failure.cause, TimeoutError) or failure.cause.cause:  # a cause: a worker tried and failed
            raise
    return await ask()
