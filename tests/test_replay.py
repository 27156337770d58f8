"""Histories that were recorded earlier replay on the code of today: running actions survive an upgrade."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from workers.families import WORKFLOWS
from workers.plugin import plugin

RECORDED = sorted((Path(__file__).parent / "histories").glob("*.json"))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
async def test_a_recorded_history_replays(file: Path) -> None:
    replayer = Replayer(workflows=WORKFLOWS, plugins=[plugin(sandbox=True)])
    path = _started(file)["workflowId"]  # the code looks at it: an action's ID is its object's path
    await replayer.replay_workflow(WorkflowHistory.from_json(path, file.read_text()))


def _started(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["events"][0]["workflowExecutionStartedEventAttributes"]
    return found


def test_every_workflow_type_has_a_recorded_history() -> None:
    kinds = {_started(file)["workflowType"]["name"] for file in RECORDED}
    assert kinds == {str(workflow._Definition.must_from_class(each).name) for each in WORKFLOWS}
