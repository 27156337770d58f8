"""Actions on orphans: remove a VM that has no record, or adopt it into the record of its path."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.mci.orphans import OrphanActivities
    from activities.mci.records import RecordActivities
    from domain import wire
    from domain.mci.messages import ADOPT_ORPHAN, REMOVE_ORPHAN
    from domain.mci.strays import Adoption, StrayOrder
    from domain.model import Done, Grant, Outcome, Request
    from domain.paths import name_of, parent_of
    from workflows.action import Action, Failed
    from workflows.calls import run_local, run_remote
    from workflows.mci.calls import join_problems

PATIENCE = timedelta(hours=1)


@workflow.defn(name=REMOVE_ORPHAN)
class RemoveOrphan(Action):
    """Terminates an orphan in its cloud. Its object exists only during the action; a survey finds what is left."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        place = str(grant.details.get("place", ""))
        queue = wire.cloud_queue(wire.split_placement(place)[0]) if place else None
        order = StrayOrder(path=grant.path, epoch=grant.epoch, place=place)
        result = await run_remote(OrphanActivities.terminate_orphan, order, PATIENCE, f"remove {place}", queue)
        if result.problems:
            raise Failed(join_problems(result.problems), Done())
        return Done()


@workflow.defn(name=ADOPT_ORPHAN)
class AdoptOrphan(Action):
    """Reads an orphan from its cloud, and writes it to the record of its path. The cloud is not changed."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        place = str(grant.details["place"])
        queue = wire.cloud_queue(wire.split_placement(place)[0])
        order = StrayOrder(path=grant.path, epoch=grant.epoch, place=place, own=str(grant.details["own"]))
        seen = await run_remote(OrphanActivities.identify_orphan, order, PATIENCE, f"identify in {place}", queue)
        if seen.problem:
            raise Failed(seen.problem, Done())
        adoption = Adoption(order=order, seen=seen, at=workflow.now())
        status = await run_local(RecordActivities.adopt_vm, adoption)
        return Done(message=f"{parent_of(grant.path)} is {status}: its VM is {name_of(grant.path)}")
