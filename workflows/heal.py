"""The self-healing workflow: one sweep over everything that is under way for longer than its limit."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.healing import HealActivities
    from domain import wire
    from domain.healing import HealReport, Sweep
    from workflows.calls import run_remote

PATIENCE = timedelta(minutes=10)


@workflow.defn(name=wire.HEAL)
class Heal:
    """The workflow of one sweep, started by the schedule and by `starter heal`."""

    @workflow.run
    async def run(self, order: Sweep) -> HealReport:
        summary = "what is over its limit, and is its workflow alive?"
        return await run_remote(
            HealActivities.sweep, order.model_copy(update={"at": workflow.now()}), PATIENCE, summary
        )
