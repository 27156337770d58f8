"""The self-healing workflow: one sweep over everything that is under way for longer than its limit."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.healing import HealingActivities
    from domain import wire
    from domain.healing import HealReport, SweepOptions
    from workflows.calls import run_provider_activity

SWEEP_TIMEOUT = timedelta(minutes=10)


@workflow.defn(name=wire.HEAL_WORKFLOW)
class Heal:
    """The workflow of one sweep, started by the schedule and by `starter heal`."""

    @workflow.run
    async def run(self, order: SweepOptions) -> HealReport:
        summary = "what is over its limit, and is its workflow alive?"
        return await run_provider_activity(
            HealingActivities.sweep, order.model_copy(update={"at": workflow.now()}), SWEEP_TIMEOUT, summary
        )
