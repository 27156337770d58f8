"""Ending a run that does not make way for a forced action: by a worker, after the policy was asked, not by the client.

The run is named: whatever runs there by now under the same workflow ID is left alone. Whether it had its minute is
judged here, by what Temporal has on record of it: who asks cannot shorten it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from activities.reads import refusal_as_answer
from activities.runs import described
from domain import registry, wire
from domain.errors import Category, Refused
from domain.model import Request
from domain.requests import EvictRun

GRACE = 60.0  # seconds in which a run may make way, whoever asks


class EvictActivities:
    """`allowed` raises Refused if whoever asks may not do that."""

    def __init__(self, client: Client, allowed: Callable[[Request], None] | None = None) -> None:
        self._client = client
        self._allowed = allowed

    @activity.defn
    async def make_way(self, order: EvictRun) -> EvictRun:
        """Cancel the run and give it its minute, unless it had it; then terminate it. One that has ended is left."""
        return await refusal_as_answer(self._make_way(order))

    async def _make_way(self, order: EvictRun) -> EvictRun:
        request = order.request
        if not registry.takes_over(request):
            raise Refused(Category.INVALID, "only force on the same object may take over, and never a creation")
        if self._allowed:
            self._allowed(request)
        run: WorkflowHandle[object, object] = self._client.get_workflow_handle(request.path, run_id=order.run)
        try:
            if (left := GRACE - await self._had(run)) > 0:
                await run.cancel()
                await _ended(run, left)
            await run.terminate(
                reason=f"did not make way for {request.action} by {request.requested_by or 'nobody named'}"
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # not found: it has ended
                raise
        return order

    async def _had(self, run: WorkflowHandle[object, object]) -> float:
        """Seconds that the run has had: since its task cannot be done, or since it has accepted to make way."""
        found = await described(self._client, run.id, run.run_id or "")
        since: list[datetime] = []
        if found and found.pending_workflow_task.HasField("original_scheduled_time"):
            since.append(found.pending_workflow_task.original_scheduled_time.ToDatetime(UTC))
        async for event in run.fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                accepted = event.workflow_execution_update_accepted_event_attributes
                if accepted.accepted_request.input.name == wire.PREEMPT:
                    since.append(event.event_time.ToDatetime(UTC))
        return (datetime.now(UTC) - min(since)).total_seconds() if since else 0.0


async def _ended(run: WorkflowHandle[object, object], seconds: float) -> None:
    """Wait until the run has ended, but not longer than that."""
    end = asyncio.ensure_future(run.result(follow_runs=False))
    await asyncio.wait({end}, timeout=seconds)
    end.cancel()
    end.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # how it ended is not ours to tell
