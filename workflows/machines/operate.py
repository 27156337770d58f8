"""The workflow of almost every action of the machine family: the state tables and `orders` say what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.machines import MachineActivities
    from domain import machines
    from domain.machines.messages import HypervisorResult, HypervisorTask, MachineGrantDetails
    from domain.model import Grant, Request, WorkReport
    from workflows.action import ActionWorkflow, action_workflow
    from workflows.calls import run_provider_activity
    from workflows.machines.recyclebin import wake_bin_clock

OPERATE_TIMEOUT = timedelta(hours=6)  # a cascade may be long; the activity has its own deadline for each order
SETTLE_TIMEOUT = timedelta(minutes=30)

HypervisorActivity = Callable[[Any, HypervisorTask], Awaitable[HypervisorResult]]


async def run_on_hypervisor(
    activity: HypervisorActivity, task: HypervisorTask, patience: timedelta
) -> HypervisorResult:
    """Runs an activity on the hypervisor's queue."""
    summary = f"{task.grant.action} {', '.join(task.verbs or ())}".strip()
    return await run_provider_activity(activity, task, patience, summary, machines.HYPERVISOR_QUEUE)


@action_workflow(machines.OPERATE_OBJECT)
class OperateObject(ActionWorkflow):
    """Carries out an action by orders to the hypervisor, also for related objects. A delete wakes its bin's clock."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        if MachineGrantDetails.model_validate(
            grant.details
        ).until:  # first: its clock must run even if this workflow dies
            await wake_bin_clock(grant.path)
        work = await run_on_hypervisor(MachineActivities.operate_object, HypervisorTask(grant=grant), OPERATE_TIMEOUT)
        return WorkReport(message=work.message, to=work.to, info=work.info)

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        work = await run_on_hypervisor(MachineActivities.settle_object, HypervisorTask(grant=grant), SETTLE_TIMEOUT)
        return WorkReport(message=work.message, to=work.to, info=work.info)
