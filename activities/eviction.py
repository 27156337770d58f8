"""Terminates a run that does not make way for a forced action, after a worker has checked that it would be admitted.

The order names the run, so a later run of the same workflow ID is left alone. The grace period is measured by
Temporal's record of the run and by its clock: neither the requester nor a worker whose clock is wrong can shorten it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from activities.dryrun import DryRunChecker
from activities.reads import refusals_as_errors
from activities.runs import describe_run
from domain import registry, wire
from domain.errors import Category, Refused
from domain.requests import EvictRun

GRACE_SECONDS = 60.0  # seconds in which a run may make way, whoever asks


class EvictionActivities:
    """Ends runs that block a forced action, if that would be admitted."""

    def __init__(self, client: Client, dry_runs: DryRunChecker) -> None:
        self._client = client
        self._dry_runs = dry_runs

    @activity.defn
    @refusals_as_errors
    async def make_way(self, order: EvictRun) -> EvictRun:
        """Cancels a run, waits out its grace period, then terminates it. A run that has ended is left alone."""
        request = order.request
        if not registry.may_preempt(request):
            raise Refused(
                Category.INVALID,
                "only force on the same object may take over, and never a creation",
                "see: starter explain PATH",
            )
        await self._dry_runs.check_takeover(request)
        run: WorkflowHandle[object, object] = self._client.get_workflow_handle(request.path, run_id=order.run)
        try:
            if (left := GRACE_SECONDS - await self._seconds_since_asked(run)) > 0:
                await run.cancel()
                await _wait_until_ended(run, left)
            await run.terminate(
                reason=f"did not make way for {request.action} by {request.requested_by or 'nobody named'}"
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # not found: it has ended
                raise
        return order

    async def _seconds_since_asked(self, run: WorkflowHandle[object, object]) -> float:
        """Returns for how many seconds the run was blocked, or had accepted the preemption."""
        found = await describe_run(self._client, run.id, run.run_id or "")
        since: list[datetime] = []
        if found and found.pending_workflow_task.HasField("original_scheduled_time"):
            since.append(found.pending_workflow_task.original_scheduled_time.ToDatetime(UTC))
        async for event in run.fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                accepted = event.workflow_execution_update_accepted_event_attributes
                if accepted.accepted_request.input.name == wire.PREEMPT_UPDATE:
                    since.append(event.event_time.ToDatetime(UTC))
        now = activity.info().started_time if activity.in_activity() else datetime.now(UTC)  # all by Temporal's clock
        return (now - min(since)).total_seconds() if since else 0.0


async def _wait_until_ended(run: WorkflowHandle[object, object], seconds: float) -> None:
    """Waits until the run has ended, or the time is over."""
    end = asyncio.ensure_future(run.result(follow_runs=False))
    await asyncio.wait({end}, timeout=seconds)
    end.cancel()
    end.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # avoids asyncio's warning
