"""The removal of an orphan: one activity of the family that knows its provider."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.orphans import OrphanActivities
    from domain.model import Done, Grant, Outcome, Request
    from domain.wire import REMOVE_ORPHAN
    from workflows.action import Action
    from workflows.calls import run_remote

PATIENCE = timedelta(hours=1)


@workflow.defn(name=REMOVE_ORPHAN)
class RemoveOrphan(Action):
    """Remove at its provider what has no record. Its object exists only during the action; a later look finds what is
    left."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        queue = str(grant.details.get("queue", "")) or None
        said = await run_remote(OrphanActivities.remove_orphan, grant, PATIENCE, "remove what has no record", queue)
        return Done(message=said)
