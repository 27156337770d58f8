"""Recorded histories replay on the code of today: running actions survive an upgrade."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from temporalio.worker._workflow import _WorkflowWorker

from workers.families import WORKFLOWS
from workers.plugin import temporal_plugin

RECORDED = sorted((Path(__file__).parent / "histories").glob("*.json"))


async def test_every_recorded_history_replays() -> None:
    """One replayer for all, for it takes its time to begin. The checks of a new family replay that family's."""
    mine = [file for file in RECORDED if file.stem.startswith(os.environ.get("RATCHET_CHAOS_FAMILY", ""))]

    async def histories() -> AsyncIterator[WorkflowHistory]:
        for file in mine:
            yield _history(file)

    names = {_history(file).run_id: file.stem for file in mine}
    replayer = Replayer(workflows=WORKFLOWS, plugins=[temporal_plugin(sandbox=True)])
    async with replayer.workflow_replay_iterator(histories()) as results:
        replayed = [result async for result in results]
    failures = {names[result.history.run_id]: result.replay_failure for result in replayed if result.replay_failure}
    assert len(replayed) == len(mine) > 0
    assert failures == {}


@cache
def _history(file: Path) -> WorkflowHistory:
    """The code looks at its ID: an action's is its object's path."""
    return WorkflowHistory.from_json(_started(file)["workflowId"], file.read_text())


@cache
def _started(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["events"][0]["workflowExecutionStartedEventAttributes"]
    return found


def test_every_workflow_type_has_a_recorded_history() -> None:
    kinds = {_started(file)["workflowType"]["name"] for file in RECORDED}
    assert kinds == {str(workflow._Definition.must_from_class(each).name) for each in WORKFLOWS}


def test_no_two_recorded_histories_are_of_the_same_run() -> None:
    assert len({_history(file).run_id for file in RECORDED}) == len(RECORDED)


class _Slow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        time.sleep(2.5)  # noqa: ASYNC251  the SDK allows two seconds
        return await super().execute_workflow(input)


class _Slowly(Interceptor):
    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _Slow


async def test_a_task_of_a_replay_may_take_as_long_as_the_machine_needs() -> None:
    """tests/conftest.py overrides the SDK's limit. Where it is not the limit any more, such a replay never ends."""
    assert "self._deadlock_timeout_seconds = " in inspect.getsource(_WorkflowWorker.__init__)
    replayer = Replayer(workflows=WORKFLOWS, plugins=[temporal_plugin()], interceptors=[_Slowly()])
    await replayer.replay_workflow(_history(RECORDED[0]))
