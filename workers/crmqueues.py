"""Lets CRMs work over HTTP: takes their orders from Temporal in their place, and passes on their answers.

For each CRM that polls, this process serves the CRM's own task queue. An order counts as taken when the CRM's next poll
says so; one that a dead CRM or a dead gateway did not hand over comes again. The session lasts while the CRM polls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from domain.edge import messages
from domain.edge.messages import CrmOrders, CrmPoll, CrmRequest, CrmRequests
from domain.errors import Category, Refused
from providers.edge.controller import ControllerClient
from providers.edge.token import CrmToken

POLL_SECONDS = 5.0  # that a poll waits for orders
SILENCE_SECONDS = 8.0  # without a poll, after which a session ends: the CRM is gone
IDLE_SECONDS = 30.0  # without a poll, after which its queue is not served any more
HEARTBEAT_SECONDS = 1.0
DELIVERY_SECONDS = 10.0
MAX_QUEUES = 1_000
CLOCK_SECONDS = 60.0  # by how much a CRM's clock may differ


@dataclass
class _OrderBatch:
    """Orders that wait to be taken."""

    number: int
    requests: list[CrmRequest]
    taken: asyncio.Event = field(default_factory=asyncio.Event)


class CrmQueue:
    """The queue of one CRM, served while it polls."""

    def __init__(self) -> None:
        self._batches: list[_OrderBatch] = []
        self._number = 0
        self._more = asyncio.Event()
        self._session = 0  # the connection whose session is open
        self._notify_id = 0
        self._last_poll = time.monotonic()
        self.last_signed = 0

    @property
    def seconds_since_poll(self) -> float:
        """Seconds since the last poll."""
        return time.monotonic() - self._last_poll

    async def poll(self, poll: CrmPoll) -> CrmOrders:
        """Takes note of what the CRM has received, and returns its next orders, as soon as there are some."""
        self._last_poll, self._notify_id = time.monotonic(), poll.notify_id
        for batch in [batch for batch in self._batches if batch.number <= poll.received]:
            batch.taken.set()
            self._batches.remove(batch)
        known = self._session
        try:
            async with asyncio.timeout(POLL_SECONDS):
                while not self._batches and self._session == known:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            pass
        self._last_poll = time.monotonic()
        requests = [request for batch in self._batches for request in batch.requests]
        return CrmOrders(
            batch=self._batches[-1].number if self._batches else poll.received,
            requests=requests,
            session=self._session,
        )

    @activity.defn(name=messages.CRM_REQUESTS)
    async def take_requests(self, given: CrmRequests) -> int:
        """Waits until the CRM has taken the orders; given up, they are sent again by Temporal."""
        self._number += 1
        batch = _OrderBatch(self._number, given.requests)
        self._batches.append(batch)
        self._more.set()
        try:
            await batch.taken.wait()
        finally:
            if batch in self._batches:
                self._batches.remove(batch)
        return len(given.requests)

    @activity.defn(name=messages.CRM_SESSION)
    async def keep_session(self, notify_id: int) -> str:
        """Keeps the connection open while the CRM polls: its start is the controller's acknowledgement."""
        self._session = notify_id
        self._more.set()
        try:
            while self.seconds_since_poll < SILENCE_SECONDS:
                if self._notify_id > notify_id:
                    return "another connection has taken its place"
                activity.heartbeat()
                await asyncio.sleep(HEARTBEAT_SECONDS)
            return f"its CRM has not polled for {SILENCE_SECONDS:g} s"
        finally:
            if self._session == notify_id:
                self._session = 0
                self._more.set()


class CrmQueueServer:
    """Serves the queues of all CRMs that poll this gateway."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queues: dict[tuple[str, str], CrmQueue] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def poll(self, cloudlet: str, poll: CrmPoll) -> CrmOrders:
        """Returns the next orders of a cloudlet's CRM. Refuses a poll that is old, or was used before."""
        key = (cloudlet, poll.version)
        if abs(time.time() - poll.at / 1_000_000) > CLOCK_SECONDS:
            raise Refused(Category.INVALID, "at: the poll is too old, or of the future", "look at the CRM's clock")
        queue = self._queues.get(key)
        if queue is None:
            if len(self._queues) >= MAX_QUEUES:
                raise Refused(Category.QUOTA, f"{MAX_QUEUES} CRMs poll this gateway already", "use another one")
            queue = self._queues[key] = CrmQueue()
            self._tasks[key] = asyncio.create_task(self._serve_queue(key, queue))
        if poll.at <= queue.last_signed:
            raise Refused(Category.NOT_ALLOWED, "at: this poll, or a later one, was seen already", "poll anew")
        queue.last_signed = poll.at
        return await queue.poll(poll)

    async def _serve_queue(self, key: tuple[str, str], queue: CrmQueue) -> None:
        worker = Worker(
            self._client,
            task_queue=messages.crm_queue(*key),
            activities=[queue.take_requests, queue.keep_session],
            build_id="crm",
            graceful_shutdown_timeout=timedelta(0),
            max_heartbeat_throttle_interval=timedelta(seconds=3),
            activity_task_poller_behavior=PollerBehaviorAutoscaling(initial=1),
        )
        try:
            async with worker:
                while queue.seconds_since_poll < IDLE_SECONDS:  # noqa: ASYNC110  nothing happens: that is what is awaited
                    await asyncio.sleep(IDLE_SECONDS - queue.seconds_since_poll)
        finally:
            del self._queues[key], self._tasks[key]

    async def read_known_notify_id(self, cloudlet: str) -> int:
        """Returns the highest notify-id that the controller knows."""
        return await self._make_controller_client(cloudlet).read_known_notify_id()

    async def deliver_to_controller(self, cloudlet: str, signal: str, to: str, message: Mapping[str, Any]) -> None:
        """Passes a CRM's message on as it came, so that its proof fits; TimeoutError if Temporal does not take it."""
        controller = self._make_controller_client(cloudlet)
        async with asyncio.timeout(DELIVERY_SECONDS):
            if signal == messages.CRM_RESPONSE:
                await controller.send_answer(to, dict(message))
            elif signal == messages.CRM_CONNECT:
                await controller.send_connect(dict(message))
            else:
                await controller.send_signed_disconnect(dict(message))

    def _make_controller_client(self, cloudlet: str) -> ControllerClient:
        return ControllerClient(self._client, cloudlet, CrmToken(Path("/dev/null/no-token")))

    async def close(self) -> None:
        """Ends serving; sessions end with it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
