"""Actions on many VMs: control, removal, and scaling."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.mci.places import PlaceActivities
    from activities.mci.records import MciRecordActivities
    from activities.mci.vms import VmActivities
    from domain import wire
    from domain.errors import format_count
    from domain.limits import FAILURES_SHOWN
    from domain.mci.messages import PROBLEMS_SHOWN, SCALE_GROUP, AddedVms, AddVms, MciGrantDetails, PlaceRequirements
    from domain.mci.specs import ScaleSpec
    from domain.mci.tables import VmStatus
    from domain.model import Grant, Refusal, Request, TargetFailure, WorkReport
    from workflows.action import ActionWorkflow, WorkFailed, action_workflow
    from workflows.calls import examine_request, run_local_activity
    from workflows.mci.calls import join_problems, run_in_all_places
    from workflows.summary import list_called_clouds

OPERATE_TIMEOUT = timedelta(hours=2)  # for a chunk; the activity has its own deadline for each VM
SETTLE_TIMEOUT = timedelta(minutes=2)


class VmsAction(ActionWorkflow):
    """Base of the actions that give orders to clouds for many VMs."""

    def __init__(self) -> None:
        super().__init__()
        self._operated: Grant | None = None  # the grant with the VMs that were enrolled
        self._has_left = False  # has left its places for good

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        await self.operate_vms(grant)
        return WorkReport()

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        await self.run_per_chunk(self._operated or grant, VmActivities.settle_vms, SETTLE_TIMEOUT)
        return WorkReport()

    async def operate_vms(self, grant: Grant) -> None:
        """Orders the action of the clouds for all chunks, and waits until they are done."""
        self._operated = grant
        self._providers = list_called_clouds(grant)
        await self.run_per_chunk(grant, VmActivities.operate_vms, OPERATE_TIMEOUT)

    async def add_vms(
        self, grant: Grant, action: str, scale: ScaleSpec | None = None, message: str = ""
    ) -> tuple[Grant, AddedVms]:
        """Adds VMs to this action: new ones, or existing ones to remove."""
        which = {"group": scale.subGroup, "count": scale.count} if scale else {}
        order = AddVms(path=grant.path, epoch=grant.epoch, action=action, at=workflow.now(), message=message, **which)
        enrolled = await run_local_activity(MciRecordActivities.add_vms_to_action, order)
        return grant.model_copy(update={"chunks": enrolled.chunks, "targets": enrolled.targets}), enrolled

    async def prepare_places(self, grant: Grant, wanted: Sequence[PlaceRequirements]) -> None:
        """Creates the missing shared resources in all places in parallel. Raises WorkFailed with every reason."""
        todo = [needs for needs in wanted if needs.place in MciGrantDetails.model_validate(grant.details).prepare]
        if not todo:
            return
        self.update_progress(step=f"preparing {', '.join(needs.place for needs in todo[:PROBLEMS_SHOWN])}")
        found = await run_in_all_places(PlaceActivities.prepare_place, grant, todo, "prepare")
        self.update_progress(step="")
        if problems := [problem for findings in found for problem in findings.problems]:
            troubles = [
                TargetFailure(path=grant.path, status=VmStatus.FAILED, error=problem, at=workflow.now())
                for problem in problems
            ]
            left = await self.release_places(grant)
            report = WorkReport(info={"problems": [*problems, *left]}, troubles=troubles[:FAILURES_SHOWN])
            raise WorkFailed(f"the preparation failed: {join_problems([*problems, *left])}", report)

    async def release_places(self, grant: Grant) -> list[str]:
        """Leaves the MCI's places; shared resources that no other MCI uses are removed. Returns what could not be."""
        self._has_left = True
        findings = await run_in_all_places(PlaceActivities.release_place, grant, _places_of_grant(grant), "release")
        return [problem for finding in findings for problem in finding.problems]


def _places_of_grant(grant: Grant) -> list[PlaceRequirements]:
    places = MciGrantDetails.model_validate(grant.details).places
    return [PlaceRequirements(place=place, specs=[], images=[]) for place in places]


@action_workflow(wire.CONTROL_VMS)
class ControlVms(VmsAction):
    """Suspends, resumes, reboots or terminates one VM, or those VMs of an MCI whose status allows it."""


@action_workflow(wire.REMOVE_VMS)
class RemoveVms(VmsAction):
    """Terminates VMs and removes their records: the failed ones, or all together with their MCI.

    A record is removed only after the cloud has confirmed that its VM is gone. A forced delete does not ask the cloud.
    """

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        if request.action == "delete" and request.force:
            return await self._forget_vms(grant)
        await super().perform_work(request, grant)
        left = await self.release_places(grant)
        if left and not self.progress().failed:  # otherwise the remaining VMs' errors say why
            raise WorkFailed(join_problems(left), WorkReport())
        return WorkReport()

    async def _forget_vms(self, grant: Grant) -> WorkReport:
        await self.run_per_chunk(grant, VmActivities.forget_vms, SETTLE_TIMEOUT)
        left = f"removed without asking the clouds: {format_count(grant.targets, 'VM')} may be left there"
        if alone := MciGrantDetails.model_validate(grant.details).alone:
            left += f", and what VMs share in {', '.join(alone[:PROBLEMS_SHOWN])}"
        return WorkReport(message=left)


@action_workflow(SCALE_GROUP)
class ScaleGroup(VmsAction):
    """Adds VMs to a subgroup, numbered on from the highest number ever used; or removes the highest-numbered ones."""

    async def examine_request(self, request: Request) -> Request | Refusal:
        if request.action == "scale-in":
            return request
        examination = await examine_request(MciRecordActivities.examine_mci_request, request)
        return examination if isinstance(examination, Refusal) else examination.refusal or request

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        await self.prepare_places(grant, _places_of_grant(grant))
        grant, _ = await self.add_vms(grant, request.action, self.spec(ScaleSpec))
        self.update_progress(targets=grant.targets)
        await self.operate_vms(grant)
        return WorkReport()
