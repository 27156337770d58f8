"""Histories that were recorded earlier replay on the code of today: running actions survive an upgrade."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from workers.families import WORKFLOWS
from workers.plugin import plugin

RECORDED = sorted((Path(__file__).parent / "histories").glob("*.json"))


@pytest.fixture(scope="module")
async def failures() -> dict[str, Exception | None]:
    """What became of each run when it was replayed: one replayer for all, for it takes its time to begin."""

    async def histories() -> AsyncIterator[WorkflowHistory]:
        for file in RECORDED:
            yield _history(file)

    replayer = Replayer(workflows=WORKFLOWS, plugins=[plugin(sandbox=True)])
    async with replayer.workflow_replay_iterator(histories()) as results:
        return {result.history.run_id: result.replay_failure async for result in results}


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
async def test_a_recorded_history_replays(file: Path, failures: dict[str, Exception | None]) -> None:
    if failure := failures[_history(file).run_id]:
        raise failure


def _history(file: Path) -> WorkflowHistory:
    """The code looks at its ID: an action's is its object's path."""
    return WorkflowHistory.from_json(_started(file)["workflowId"], file.read_text())


def _started(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["events"][0]["workflowExecutionStartedEventAttributes"]
    return found


def test_every_workflow_type_has_a_recorded_history() -> None:
    kinds = {_started(file)["workflowType"]["name"] for file in RECORDED}
    assert kinds == {str(workflow._Definition.must_from_class(each).name) for each in WORKFLOWS}


def test_no_two_recorded_histories_are_of_the_same_run() -> None:
    assert len({_history(file).run_id for file in RECORDED}) == len(RECORDED)
