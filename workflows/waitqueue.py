"""The wait queue behind hidden actions, and how it is drained.

An action that ends reads in the locks which workflows wait for it, and signals them. That only saves time: the waiting
ones also check from time to time, and abandon dead holders, so that a lost signal costs little.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.inventory import ActionActivities
    from activities.retry import growing_pauses
    from domain import wire
    from domain.model import LockHolder
    from domain.waitqueue import LockHolders, QueueCommand, QueuedWorkflow
    from workflows.calls import abandon_dead_holders, first_run_id, run_local_activity

FIRST_PAUSE = 1.0  # seconds
LONGEST_PAUSE = 10.0
MAX_WOKEN = 100  # times that a signal wakes a run: anybody may send it, and each look is an event of the run's history


class QueueWaiter:
    """One workflow's place in the wait queues: it waits for the lock holders ahead, and signals those behind."""

    def __init__(self) -> None:
        self.passed = 0
        self.waiting = False

    def wake(self) -> None:
        """Makes the waiting run look again; one that was woken too often looks by its own timer only."""
        self.passed = min(self.passed + 1, MAX_WOKEN)

    async def wait_for_holders(self, ahead: list[LockHolder]) -> None:
        """Waits until all holders ahead have released their locks."""
        self.waiting, pauses = True, growing_pauses(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            seen = self.passed  # read first, so that a signal that arrives meanwhile is not missed
            left = await run_local_activity(ActionActivities.filter_unreleased_holders, LockHolders(holders=ahead))
            if not left.holders:
                break
            try:
                await workflow.wait_condition(
                    lambda seen=seen: self.passed > seen,  # type: ignore[misc]
                    timeout=timedelta(seconds=next(pauses)),
                    timeout_summary="look whether those ahead have passed",
                )
            except TimeoutError:
                await abandon_dead_holders(left)
        self.waiting = False

    async def notify_followers(self, followers: list[str]) -> None:
        """Signals the workflows behind in the queue that this one has ended."""
        me = QueuedWorkflow(workflow=workflow.info().workflow_id)
        await asyncio.gather(*(_signal_passed(follower, me) for follower in followers))


async def _signal_passed(whom: str, me: QueuedWorkflow) -> None:
    try:
        await workflow.get_external_workflow_handle(whom).signal(wire.PASSED_SIGNAL, me)
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.info("%s has ended already", whom)


def _stamp_command(order: QueueCommand) -> QueueCommand:
    return order.model_copy(update={"run": first_run_id(), "at": workflow.now()})


@workflow.defn(name=wire.DRAIN_QUEUE)
class DrainQueue:
    """Drains the wait queue at a path: closes it, waits until it is empty, and opens it again."""

    def __init__(self) -> None:
        self._queue = QueueWaiter()

    @workflow.run
    async def run(self, order: QueueCommand) -> LockHolders:
        ahead = await run_local_activity(ActionActivities.close_wait_queue, _stamp_command(order))
        try:
            await self._queue.wait_for_holders(ahead.holders)
        finally:
            await asyncio.shield(
                asyncio.ensure_future(run_local_activity(ActionActivities.open_wait_queue, _stamp_command(order)))
            )
        return ahead

    @workflow.signal(name=wire.PASSED_SIGNAL)
    def passed(self, waiter: QueuedWorkflow) -> None:
        """Signal: an action ahead in the wait queue has ended."""
        self._queue.wake()
