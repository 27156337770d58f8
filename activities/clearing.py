"""Ending a run that does not make way for a forced action: by a worker, after the policy was asked, not by the client.

The run is named: whatever runs there by now under the same workflow ID is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from activities.reading import answer
from domain import registry, wire
from domain.errors import Category, Refused
from domain.model import Request
from domain.requests import MakeWay

LONGEST = 60.0  # seconds that a run is given to clean up, whoever asks


class Clearing:
    """`allowed` raises Refused if whoever asks may not do that."""

    def __init__(self, client: Client, allowed: Callable[[Request], None] | None = None) -> None:
        self._client = client
        self._allowed = allowed

    @activity.defn(name=wire.MAKE_WAY)
    async def make_way(self, order: MakeWay) -> MakeWay:
        """Cancel the run and wait, if it is to clean up; then terminate it. One that has ended is left as it is."""
        return await answer(self._make_way(order))

    async def _make_way(self, order: MakeWay) -> MakeWay:
        request = order.request
        if not registry.takes_over(request):
            raise Refused(Category.INVALID, "only force on the same object may take over, and never a creation")
        if self._allowed:
            self._allowed(request)
        run: WorkflowHandle[object, object] = self._client.get_workflow_handle(request.path, run_id=order.run)
        try:
            if order.seconds:
                await run.cancel()
                await _ended(run, min(order.seconds, LONGEST))
            await run.terminate(
                reason=f"did not make way for {request.action} by {request.requested_by or 'nobody named'}"
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # not found: it has ended
                raise
        return order


async def _ended(run: WorkflowHandle[object, object], seconds: float) -> None:
    """Wait until the run has ended, but not longer than that."""
    end = asyncio.ensure_future(run.result(follow_runs=False))
    await asyncio.wait({end}, timeout=seconds)
    end.cancel()
    end.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # how it ended is not ours to tell
