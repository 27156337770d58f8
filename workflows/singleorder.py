"""The single-order action as a workflow: a family's subclass only names its queue."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.singleorder import SingleOrderActivities
    from domain.model import Grant, Request, WorkReport
    from domain.singleorder import OrderTask
    from workflows.action import ActionWorkflow
    from workflows.calls import run_provider_activity

ORDER_TIMEOUT = timedelta(hours=2)  # the activity is patient with the provider by itself
SETTLE_TIMEOUT = timedelta(minutes=30)


class SingleOrderAction(ActionWorkflow):
    """Gives one order to the provider, and describes the object if that failed or was cut off."""

    queue: ClassVar[str]  # of the family's `SingleOrderActivities`

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        task = OrderTask(grant=grant, spec=request.spec or {})
        return await run_provider_activity(
            SingleOrderActivities.order_object, task, ORDER_TIMEOUT, grant.action, self.queue
        )

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        task = OrderTask(grant=grant, spec=request.spec or {})
        return await run_provider_activity(
            SingleOrderActivities.settle_ordered, task, SETTLE_TIMEOUT, "describe", self.queue
        )
