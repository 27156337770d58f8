"""MCI and VM: creating them and controlling them."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.mci import VmActivities
    from domain import wire
    from domain.model import Done, Grant, Outcome, Request
    from workflows.action import Action

OPERATE_PATIENCE = timedelta(hours=2)  # for a chunk; the activity is patient with each VM by itself
SETTLE_PATIENCE = timedelta(minutes=2)


class _OnVms(Action):
    """Actions whose work is one order to the clouds for many VMs."""

    async def perform(self, request: Request, grant: Grant) -> Done:
        await self.each_chunk(grant, VmActivities.operate_vms, OPERATE_PATIENCE)
        return Done()

    async def settle(self, request: Request, grant: Grant) -> Done:
        await self.each_chunk(grant, VmActivities.settle_vms, SETTLE_PATIENCE)
        return Done()


@workflow.defn(name=wire.CREATE_MCI)
class CreateMci(_OnVms):
    """Create an MCI: begin makes the records of all its VMs, then every cloud makes its own."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)


@workflow.defn(name=wire.CONTROL_VMS)
class ControlVms(_OnVms):
    """Suspend, resume, reboot or terminate one VM, or those VMs of an MCI whose status allows it."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)


@workflow.defn(name=wire.REMOVE_VMS)
class RemoveVms(_OnVms):
    """Terminate VMs and remove their records: those that failed, or all together with their MCI.

    A record goes only after the cloud has confirmed that its VM is gone. A forced delete does not ask the cloud.
    """

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        if request.action != "delete" or not request.force:
            return await super().perform(request, grant)
        await self.each_chunk(grant, VmActivities.forget_vms, SETTLE_PATIENCE)
        return Done(message=f"removed without asking the clouds: {grant.targets} VMs may be left there")
