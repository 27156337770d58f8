"""The adoption of an orphan by the record of the path that it carries."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.mci.orphans import IdentifyOrphanActivities
    from activities.mci.records import MciRecordActivities
    from domain import wire
    from domain.mci.messages import ADOPT_ORPHAN
    from domain.mci.orphans import AdoptOrphanOrder, OrphanOrder
    from domain.model import Grant, Request, WorkReport
    from domain.orphans import OrphanGrantDetails
    from domain.paths import name_of, parent_of
    from workflows.action import ActionWorkflow, WorkFailed, action_workflow
    from workflows.calls import run_local_activity, run_provider_activity

ORPHAN_TIMEOUT = timedelta(hours=1)


@action_workflow(ADOPT_ORPHAN)
class AdoptOrphan(ActionWorkflow):
    """Reads an orphan from its cloud, and writes it to the record of its path. The cloud is not changed."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        terms = OrphanGrantDetails.model_validate(grant.details)
        queue = wire.cloud_queue(wire.split_placement(terms.place)[0])
        order = OrphanOrder(path=grant.path, epoch=grant.epoch, place=terms.place, own=terms.own)
        seen = await run_provider_activity(
            IdentifyOrphanActivities.identify_orphan, order, ORPHAN_TIMEOUT, f"identify in {terms.place}", queue
        )
        if seen.problem:
            raise WorkFailed(seen.problem, WorkReport())
        adoption = AdoptOrphanOrder(order=order, seen=seen, at=workflow.now())
        status = await run_local_activity(MciRecordActivities.adopt_orphan, adoption)
        return WorkReport(message=f"{parent_of(grant.path)} is {status}: its VM is {name_of(grant.path)}")
