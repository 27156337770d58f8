"""The recycle bin: a durable timer for each object in it; when it is over, a normal action destroys the object."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.refusals import refusal_in
    from domain import machines
    from domain.errors import Category
    from domain.limits import TASK_TIMEOUT
    from domain.machines.model import InBin
    from domain.model import Request

BUSY_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(hours=1)


@workflow.defn(name=machines.BIN)
class EmptyBin:
    """Cancelled when the object is restored or destroyed. One that comes too late is refused by the number."""

    OUTLIVES_BUILDS = True

    def __init__(self) -> None:
        self._order: InBin | None = None

    @workflow.run
    async def run(self, order: InBin) -> str:
        self._order = self._order or order
        await self._until_over()
        assert self._order
        pause = BUSY_PAUSE
        while (end := await _destroyed(self._order)) is None:
            await workflow.sleep(pause, summary="the object is busy, or could not be destroyed: again")
            pause = min(pause * 2, LONGEST_PAUSE)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(self._order.model_copy(update={"seconds": 0.0}))
        return end

    @workflow.signal
    def renew(self, order: InBin) -> None:
        """The object went into the bin again: its time begins anew."""
        self._order = order

    async def _until_over(self) -> None:
        while True:
            order = self._order
            assert order
            try:
                await workflow.wait_condition(
                    lambda order=order: self._order is not order,  # type: ignore[misc]
                    timeout=timedelta(seconds=order.seconds),
                    timeout_summary=f"{order.path} stays in the recycle bin",
                )
            except TimeoutError:
                return


async def _destroyed(order: InBin) -> str | None:
    """Destroy it, if it still is in the bin by our number. None: not now."""
    request = Request(
        path=order.path,
        action="destroy",
        spec={"bin": order.number},
        requested_by="recycle bin",
        reason="its retention is over",
    )
    try:
        await workflow.execute_child_workflow(
            machines.OPERATE,
            request,
            id=order.path,
            task_timeout=TASK_TIMEOUT,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            static_summary=f"destroy {order.path}",
        )
    except WorkflowAlreadyStartedError:
        return None
    except ChildWorkflowError as error:
        return _given_up(error)
    return "destroyed"


def _given_up(error: ChildWorkflowError) -> str | None:
    """Why there is nothing left to do; None if there is: the object was busy, or the hypervisor failed."""
    refusal = refusal_in(error.cause)
    return refusal.message if refusal and refusal.category is not Category.CONFLICT else None
