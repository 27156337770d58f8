"""The fence: proves an action's right to give orders just before each order goes out.

A worker can freeze, or lose Temporal but not the cloud, and continue after its action has ended. So an order goes out
only while both hold: Temporal acknowledged a heartbeat of this activity within its timeout, and the inventory had the
action open a moment ago. An order already on the wire cannot be stopped: it carries the action's epoch, so that a
provider that stores epochs refuses it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
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

HEARTBEAT_SECONDS = 1.0  # from one heartbeat to the next
ANSWER_TIMEOUT = timedelta(seconds=1.5)  # for a heartbeat; the one after a lost one must be in time
PROOF_VALID_SECONDS = 1.0  # how long an answer of the inventory counts
# Also counts the time for which the machine was suspended.
BOOT_CLOCK = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC

ReadClock = Callable[[], float]
SendHeartbeat = Callable[
    [], Awaitable[bool]
]  # one heartbeat: was it acknowledged? False: Temporal knows no such activity


def seconds_since_boot() -> float:
    """Returns seconds since boot, including the time for which the machine was suspended."""
    return time.clock_gettime(BOOT_CLOCK)


def make_acknowledged_heartbeat(client: Client) -> SendHeartbeat:
    """Returns a function that sends a heartbeat and awaits Temporal's answer; the SDK does not report it."""

    async def beat() -> bool:
        info = activity.info()
        request = RecordActivityTaskHeartbeatRequest(
            namespace=client.namespace, task_token=info.task_token, identity=client.identity
        )
        try:
            await client.workflow_service.record_activity_task_heartbeat(request, timeout=ANSWER_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            activity.heartbeat()  # the SDK gets the same answer, and cancels the activity
            return False
        # The SDK learns of a cancel from its own heartbeat, and cancels an activity of which it has heard none for its
        # heartbeat timeout and five seconds.
        activity.heartbeat()
        return True

    return beat


@dataclass
class OrderFence:
    """One activity's right to give orders for one action."""

    inventory: Inventory
    path: str
    epoch: int
    timeout: float  # seconds without an acknowledged heartbeat after which Temporal gives the work to another worker
    clock: ReadClock = seconds_since_boot
    acknowledged_at: float = 0.0  # time of the last acknowledged heartbeat, or of the start
    proven_at: float = float("-inf")  # time of the last read that had the action open
    is_lost: bool = False  # Temporal does not know this activity any more
    ends_at: float = inf  # time at which Temporal stops waiting for this attempt, whatever its heartbeats say
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.acknowledged_at = self.clock()

    async def prove(self) -> None:
        """Proves the right; call it just before an order. Raises Superseded if no order may be given."""
        self._check_expiry()
        if self.clock() - self.proven_at >= PROOF_VALID_SECONDS:
            async with self._asking:
                if self.clock() - self.proven_at >= PROOF_VALID_SECONDS:  # unless a concurrent order has asked
                    await self._check_action_open()
            self._check_expiry()  # the read may have taken long

    async def prove_then_call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Proves the right, then makes the call."""
        await self.prove()
        return await call()

    def accept_read_as_proof(self, asked: float) -> None:
        """Counts another read of the inventory, made at that boot time, as proof that the action is open."""
        self.proven_at = max(self.proven_at, asked)

    async def heartbeat_until_cancelled(self, beat: SendHeartbeat) -> None:
        """Sends heartbeats until cancelled. Failed ones are not counted, so the right expires by itself."""
        sent = self.clock()
        while True:
            await asyncio.sleep(max(0.0, sent + HEARTBEAT_SECONDS - self.clock()))  # no later for a slow answer
            sent = self.clock()
            try:
                if await beat():
                    self.acknowledged_at = sent
                else:
                    self.is_lost = True
                    return
            except RPCError:
                continue

    async def _check_action_open(self) -> None:
        asked = self.clock()
        if not await self.inventory.is_action_open(self.path, self.epoch):
            raise Superseded(f"the action {self.epoch} on {self.path} is over", final=True)
        self.accept_read_as_proof(asked)

    def _check_expiry(self) -> None:
        if self.is_lost:
            raise Superseded("Temporal has given this work to another worker")
        if self.clock() >= self.ends_at:
            raise Superseded("the time that this work was given is over")
        if (silence := self.clock() - self.acknowledged_at) >= self.timeout:
            raise Superseded(f"Temporal has not heard of this worker for {silence:.0f} s")


class Fence:
    """Issues rights to give orders. One per worker process."""

    def __init__(self, inventory: Inventory, beat: SendHeartbeat) -> None:
        self._inventory = inventory
        self._beat = beat

    @asynccontextmanager
    async def right_to_order(self, path: str, epoch: int) -> AsyncIterator[OrderFence]:
        """Yields the right to give orders and sends heartbeats meanwhile. A lost right fails the activity."""
        info = activity.info()
        timeout = (info.heartbeat_timeout or TASK_TIMEOUT).total_seconds()  # of a local activity: the task's
        right = OrderFence(self._inventory, path, epoch, timeout)
        right.ends_at = right.acknowledged_at + _attempt_timeout(info)
        beating = None if info.is_local else asyncio.create_task(right.heartbeat_until_cancelled(self._beat))
        try:
            yield right
        except Superseded as lost:
            raise _to_application_error(lost) from lost
        except BaseExceptionGroup as group:
            lost_rights = group.subgroup(Superseded)
            if lost_rights is None:
                raise
            raise _to_application_error(_first_superseded(lost_rights)) from group
        finally:
            if beating:
                beating.cancel()


def _attempt_timeout(info: activity.Info) -> float:
    """Returns for how many seconds from its start Temporal waits for this attempt. A worker times local ones itself."""
    limits = [info.start_to_close_timeout.total_seconds()] if info.start_to_close_timeout else []
    if info.schedule_to_close_timeout:
        waited = info.started_time - info.scheduled_time
        limits.append((info.schedule_to_close_timeout - waited).total_seconds())
    return inf if info.is_local else min(limits, default=inf)


def _first_superseded(group: BaseExceptionGroup[Superseded]) -> Superseded:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Superseded)
    return error


def _to_application_error(lost: Superseded) -> ApplicationError:
    """Converts a lost right into an activity failure: final if the action has ended, else retried by another worker."""
    return ApplicationError(f"no order was given: {lost}", type=Superseded.__name__, non_retryable=lost.final)
