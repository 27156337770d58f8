"""The end of a VM that no record knows."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.mci.orphans import OrphanActivities
    from domain import wire
    from domain.mci.messages import REMOVE_ORPHAN, StrayOrder
    from domain.model import Done, Grant, Outcome, Request
    from workflows.action import Action, Failed
    from workflows.calls import patiently
    from workflows.mci.reach import told

PATIENCE = timedelta(hours=1)


@workflow.defn(name=REMOVE_ORPHAN)
class RemoveOrphan(Action):
    """Terminate it in its cloud. Its record lives only as long as the action: what is left is found again outside."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        place = str(grant.details.get("place", ""))
        queue = wire.cloud_queue(wire.split_placement(place)[0]) if place else None
        order = StrayOrder(path=grant.path, epoch=grant.epoch, place=place)
        found = await patiently(OrphanActivities.terminate_orphan, order, PATIENCE, f"remove {place}", queue)
        if found.problems:
            raise Failed(told(found.problems), Done())
        return Done()

    async def settle(self, request: Request, grant: Grant) -> Done:
        return Done()
