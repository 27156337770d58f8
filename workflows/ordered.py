"""The ordered action as a workflow: a family's subclass only names its queue."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.ordered import OrderedActivities
    from domain.model import Done, Grant, Request
    from domain.ordered import OrderTask
    from workflows.action import Action
    from workflows.calls import run_remote

ORDER_PATIENCE = timedelta(hours=2)  # the activity is patient with the provider by itself
SETTLE_PATIENCE = timedelta(minutes=30)


class OrderedAction(Action):
    """Gives one order to the provider, and describes the object if that failed or was cut off."""

    queue: ClassVar[str]  # of the family's `OrderedActivities`

    async def perform(self, request: Request, grant: Grant) -> Done:
        task = OrderTask(grant=grant, spec=request.spec or {})
        return await run_remote(OrderedActivities.order_object, task, ORDER_PATIENCE, grant.action, self.queue)

    async def settle(self, request: Request, grant: Grant) -> Done:
        task = OrderTask(grant=grant, spec=request.spec or {})
        return await run_remote(OrderedActivities.settle_ordered, task, SETTLE_PATIENCE, "describe", self.queue)
