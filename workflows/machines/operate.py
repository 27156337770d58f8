"""The workflow of almost every action of the machine family: the state tables and `orders` say what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.machines import MachineActivities
    from domain import machines
    from domain.machines.messages import MachineTerms, ObjectResult, ObjectTask
    from domain.model import Done, Grant, Request
    from workflows.action import Action, action_workflow
    from workflows.calls import run_remote
    from workflows.machines.bin import wake_bin

OPERATE_PATIENCE = timedelta(hours=6)  # a cascade may be long; the activity has its own deadline for each order
SETTLE_PATIENCE = timedelta(minutes=30)

OnHypervisor = Callable[[Any, ObjectTask], Awaitable[ObjectResult]]


async def on_hypervisor(activity: OnHypervisor, task: ObjectTask, patience: timedelta) -> ObjectResult:
    """Runs an activity on the hypervisor's queue."""
    summary = f"{task.grant.action} {', '.join(task.verbs or ())}".strip()
    return await run_remote(activity, task, patience, summary, machines.QUEUE)


@action_workflow(machines.OPERATE)
class OperateObject(Action):
    """Carries out an action by orders to the hypervisor, also for related objects. A delete wakes its bin's clock."""

    async def perform(self, request: Request, grant: Grant) -> Done:
        if MachineTerms.model_validate(grant.details).until:  # first: its clock must run even if this workflow dies
            await wake_bin(grant.path)
        work = await on_hypervisor(MachineActivities.operate_object, ObjectTask(grant=grant), OPERATE_PATIENCE)
        return Done(message=work.message, to=work.to, info=work.info)

    async def settle(self, request: Request, grant: Grant) -> Done:
        work = await on_hypervisor(MachineActivities.settle_object, ObjectTask(grant=grant), SETTLE_PATIENCE)
        return Done(message=work.message, to=work.to, info=work.info)
