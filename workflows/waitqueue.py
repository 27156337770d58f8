"""Standing in line behind hidden work, and draining a line.

Whoever ends finds in the locks who waits for that, and tells them. That is only for speed: those who wait also look for
themselves from time to time, and bury the dead among those ahead, so that a lost message costs a moment.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from domain import wire
    from domain.model import Holder, Holders, QueueCommand, QueuedWorkflow
    from workflows import calls

FIRST_LOOK = 1.0  # seconds
LONGEST_PAUSE = 10.0


class WaitQueue:
    """One workflow's place in lines: whom it waits for, and who waits for it."""

    def __init__(self) -> None:
        self.passed = 0
        self.waiting = False

    async def wait(self, ahead: list[Holder]) -> None:
        """Until all of them have released their locks."""
        self.waiting, pause = True, FIRST_LOOK
        while True:
            seen = self.passed  # before we look: who passes meanwhile must not be missed
            left = await calls.still_held(Holders(holders=ahead))
            if not left.holders:
                break
            try:
                await workflow.wait_condition(
                    lambda seen=seen: self.passed > seen,  # type: ignore[misc]
                    timeout=timedelta(seconds=pause),
                    timeout_summary="look whether those ahead have passed",
                )
            except TimeoutError:
                await calls.heal(left)
                pause = min(pause * 2, LONGEST_PAUSE)
        self.waiting = False

    async def leave(self, followers: list[str]) -> None:
        """Tell those behind that we have passed. What was written says who they are."""
        me = QueuedWorkflow(workflow=workflow.info().workflow_id)
        await asyncio.gather(*(_notify(each, me) for each in followers))


async def _notify(whom: str, me: QueuedWorkflow) -> None:
    try:
        await workflow.get_external_workflow_handle(whom).signal(wire.PASSED, me)
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.info("%s has ended already", whom)


@workflow.defn(name=wire.DRAIN_LINE)
class DrainQueue:
    """Let nobody else stand in line at a path, wait until all who do are through, and take the line away."""

    def __init__(self) -> None:
        self._line = WaitQueue()

    @workflow.run
    async def run(self, order: QueueCommand) -> Holders:
        ahead = await calls.close_queue(order.path)
        try:
            await self._line.wait(ahead.holders)
        finally:
            await asyncio.shield(asyncio.ensure_future(calls.open_queue(order.path)))
        return ahead

    @workflow.signal(name=wire.PASSED)
    def passed(self, waiter: QueuedWorkflow) -> None:
        """Somebody ahead of us has passed."""
        self._line.passed += 1
