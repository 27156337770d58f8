"""The one workflow of almost every action: what it does is in the rows and in the orders that belong to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.machines import MachineActivities
    from domain import machines, wire
    from domain.limits import TASK_TIMEOUT
    from domain.machines.model import InBin, Task, Work
    from domain.model import Done, Grant, Outcome, Request
    from workflows.action import Action
    from workflows.calls import patiently

OPERATE_PATIENCE = timedelta(hours=6)  # a cascade may be long; the activity is patient with each order by itself
SETTLE_PATIENCE = timedelta(minutes=30)

OnHypervisor = Callable[[Any, Task], Awaitable[Work]]


async def on_hypervisor(activity: OnHypervisor, task: Task, patience: timedelta) -> Work:
    """Run an activity on the hypervisor's queue."""
    summary = f"{task.grant.action} {', '.join(task.verbs or ())}".strip()
    return await patiently(activity, task, patience, summary, machines.QUEUE)


@workflow.defn(name=machines.OPERATE)
class OperateObject(Action):
    """Orders to the hypervisor, for the object and for those that go along; then the recycle bin's timers."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        work = await on_hypervisor(MachineActivities.operate_object, Task(grant=grant), OPERATE_PATIENCE)
        await keep_bins(grant, work)
        return Done(message=work.message, to=work.to, info=work.info)

    async def settle(self, request: Request, grant: Grant) -> Done:
        work = await on_hypervisor(MachineActivities.settle_object, Task(grant=grant), SETTLE_PATIENCE)
        return Done(message=work.message, to=work.to, info=work.info)


async def keep_bins(grant: Grant, work: Work) -> None:
    """Timers for what goes into the recycle bin, begun before it shows there; none for what leaves it."""
    for path in work.binned:
        order = InBin(path=path, number=grant.epoch, seconds=float(grant.details.get("retention", 0)))
        await _begin_bin(order)
    for path in work.unbinned:
        try:
            await workflow.get_external_workflow_handle(wire.companion(path, machines.BIN_ROLE)).cancel()
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.info("%s has no timer any more", path)


async def _begin_bin(order: InBin) -> None:
    timer = wire.companion(order.path, machines.BIN_ROLE)
    try:
        await workflow.start_child_workflow(
            machines.BIN,
            order,
            id=timer,
            task_timeout=TASK_TIMEOUT,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            static_summary=f"recycle bin: {order.path}",
        )
    except WorkflowAlreadyStartedError:  # of an earlier stay: told to begin anew
        await workflow.get_external_workflow_handle(timer).signal("renew", order)
