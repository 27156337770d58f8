"""The right of an action to give orders, proven just before each order goes out.

A worker can freeze, or lose Temporal but not the cloud, and go on when its action is long over. So an order goes out
only while both are true: Temporal acknowledged a heartbeat of this activity within its timeout, and the inventory said
a moment ago that the action is open. What stays possible is an order that is on the wire already: every order carries
the action's epoch, so that a provider that can keep one refuses it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from temporalio import activity
from temporalio.api.workflowservice.v1 import RecordActivityTaskHeartbeatRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from domain.errors import Superseded
from domain.limits import TASK_TIMEOUT
from domain.ports import Inventory

T = TypeVar("T")

BEAT_SECONDS = 1.5  # a heartbeat timeout must hold several
BEAT_PATIENCE = timedelta(seconds=2)  # for the answer to one heartbeat
PROOF_SECONDS = 1.0  # how long the inventory's word is good for
# It counts the time that a machine was suspended; a clock that stands still meanwhile would notice nothing.
CLOCK = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC

ReadClock = Callable[[], float]
SendHeartbeat = Callable[
    [], Awaitable[bool]
]  # one heartbeat: was it acknowledged? False: Temporal knows no such activity


def boot_time() -> float:
    """Seconds since the machine was started, however long it was suspended."""
    return time.clock_gettime(CLOCK)


def acknowledged_heartbeats(client: Client) -> SendHeartbeat:
    """Heartbeats whose answer is awaited: the SDK's own are sent, and nobody hears whether they arrived."""

    async def beat() -> bool:
        info = activity.info()
        request = RecordActivityTaskHeartbeatRequest(
            namespace=client.namespace, task_token=info.task_token, identity=client.identity
        )
        try:
            answer = await client.workflow_service.record_activity_task_heartbeat(request, timeout=BEAT_PATIENCE)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            activity.heartbeat()  # the SDK asks too, and ends the activity
            return False
        if answer.cancel_requested or answer.activity_paused or answer.activity_reset:
            activity.heartbeat()  # the SDK hears it from its own heartbeat, and tells the activity
        return True

    return beat


@dataclass
class OrderRight:
    """One activity's right to order on behalf of one action."""

    inventory: Inventory
    path: str
    epoch: int
    timeout: float  # seconds without an acknowledged heartbeat after which Temporal gives the work to another worker
    clock: ReadClock = boot_time
    heard: float = 0.0  # when the last acknowledged heartbeat was sent; the start counts as one
    proven: float = float("-inf")  # when the inventory was asked that last called the action open
    gone: bool = False  # Temporal knows this activity no more
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.heard = self.clock()

    async def prove(self) -> None:
        """Call this just before an order. Raises Superseded: give none."""
        self._send_heartbeats()
        if self.clock() - self.proven >= PROOF_SECONDS:
            async with self._asking:
                if self.clock() - self.proven >= PROOF_SECONDS:  # or another order asked meanwhile
                    await self._ask()
            self._send_heartbeats()  # asking may have taken any time

    async def order(self, call: Callable[[], Awaitable[T]]) -> T:
        """Prove the right, then call."""
        await self.prove()
        return await call()

    def shown(self, asked: float) -> None:
        """The inventory, asked at that time (`boot_time`) for something else, has shown that the action is open."""
        self.proven = max(self.proven, asked)

    async def keep(self, beat: SendHeartbeat) -> None:
        """Heartbeat until cancelled. Errors are Temporal's silence: the right ends by itself."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            sent = self.clock()
            try:
                if await beat():
                    self.heard = sent
                else:
                    self.gone = True
                    return
            except RPCError:
                continue

    async def _ask(self) -> None:
        asked = self.clock()
        if not await self.inventory.is_open(self.path, self.epoch):
            raise Superseded(f"the action {self.epoch} on {self.path} is over", final=True)
        self.shown(asked)

    def _send_heartbeats(self) -> None:
        if self.gone:
            raise Superseded("Temporal has given this work to another worker")
        if (silence := self.clock() - self.heard) >= self.timeout:
            raise Superseded(f"Temporal has not heard of this worker for {silence:.0f} s")


class Fence:
    """Hands out rights. One per worker process."""

    def __init__(self, inventory: Inventory, beat: SendHeartbeat) -> None:
        self._inventory = inventory
        self._beat = beat

    @asynccontextmanager
    async def right(self, path: str, epoch: int) -> AsyncIterator[OrderRight]:
        """Heartbeat while the body runs, and let it order while it may. A lost right ends the activity."""
        info = activity.info()
        timeout = (info.heartbeat_timeout or TASK_TIMEOUT).total_seconds()  # a local one has its workflow task's
        right = OrderRight(self._inventory, path, epoch, timeout)
        beating = None if info.is_local else asyncio.create_task(right.keep(self._beat))
        try:
            yield right
        except Superseded as lost:
            raise _failure(lost) from lost
        except BaseExceptionGroup as group:
            lost_rights = group.subgroup(Superseded)
            if lost_rights is None:
                raise
            raise _failure(_first_error(lost_rights)) from group
        finally:
            if beating:
                beating.cancel()


def _first_error(group: BaseExceptionGroup[Superseded]) -> Superseded:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Superseded)
    return error


def _failure(lost: Superseded) -> ApplicationError:
    """An action that is over has nothing to try again; a worker that was not heard leaves it to another one."""
    return ApplicationError(f"no order was given: {lost}", type=Superseded.__name__, non_retryable=lost.final)
