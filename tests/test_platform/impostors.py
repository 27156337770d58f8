"""Workflows of somebody else. A module of their own: the sandbox imports it anew for every run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from domain import wire
    from tests.patience import PATIENCE

IMPOSTOR = "Impostor"


@workflow.defn(name=wire.CREATE_MCI)
class Namesake:
    """It has the name of one of ours, and calls an activity of ours."""

    @workflow.run
    async def run(self, name: str, argument: dict[str, Any], queue: str) -> Any:
        return await workflow.execute_activity(
            name,
            argument,
            task_queue=queue,
            start_to_close_timeout=timedelta(seconds=PATIENCE),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


@workflow.defn(name=IMPOSTOR)
class Impostor:
    """It starts one of ours as its child."""

    @workflow.run
    async def run(self, kind: str, request: dict[str, Any]) -> Any:
        return await workflow.execute_child_workflow(
            kind, request, id=request["path"], task_queue=wire.ACTIONS_QUEUE, result_type=dict
        )
