"""The removal of an orphan: one activity of the family that knows its provider."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.orphans import OrphanActivities
    from domain.model import Grant, Request, WorkReport
    from domain.wire import REMOVE_ORPHAN
    from workflows.action import ActionWorkflow, action_workflow
    from workflows.calls import run_provider_activity

ORPHAN_TIMEOUT = timedelta(hours=1)


@action_workflow(REMOVE_ORPHAN)
class RemoveOrphan(ActionWorkflow):
    """Remove at its provider what has no record. Its object exists only during the action; a later look finds what is
    left."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        queue = str(grant.details.get("queue", "")) or None
        said = await run_provider_activity(
            OrphanActivities.remove_orphan, grant, ORPHAN_TIMEOUT, "remove what has no record", queue
        )
        return WorkReport(message=said)
