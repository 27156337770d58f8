"""Bare workflows that wait for one signal: the baseline of actions that wait for an answer from outside, and its floor.

The floor has the steps of a create on a CRM, without anything of ours: admitted by an update after a commit, a request
as an activity of its own on the CRM's queue, a signal as the answer, a second commit, a search attribute.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client

from bench.baselines import PROGRESS, SOON, AnsweredAfterCommit, commit_rows

QUEUE, CRM_QUEUE = "bare-signal", "bare-crm"

# Called when a workflow begins to wait. A signal that arrives earlier would save it a workflow task, which an
# answer to a request cannot do, and the baseline would be too fast.
waits: Callable[[str], None] = lambda _name: None  # noqa: E731


@workflow.defn
class WaitForSignal:
    def __init__(self) -> None:
        self.answered = False

    @workflow.run
    async def run(self, number: int) -> int:
        waits(workflow.info().workflow_id)
        await workflow.wait_condition(lambda: self.answered)
        return number

    @workflow.signal
    def answer(self, number: int) -> None:
        self.answered = True


@dataclass
class BareCrm:
    """Receives requests on a queue of its own, and answers each at once with a signal."""

    client: Client

    @activity.defn
    async def send_request(self, workflow_id: str) -> None:
        """Sends a request as an activity that no workflow waits for."""
        await self.client.start_activity_method(
            BareCrm.answer_request, workflow_id, id=uuid.uuid4().hex, task_queue=CRM_QUEUE, start_to_close_timeout=SOON
        )

    @activity.defn
    async def answer_request(self, workflow_id: str) -> None:
        await self.client.get_workflow_handle(workflow_id).signal(AskAndWait.take_answer)


@workflow.defn
class AskAndWait(AnsweredAfterCommit):
    """The steps of a create on a CRM."""

    def __init__(self) -> None:
        super().__init__()
        self._is_answered = False

    @workflow.run
    async def run(self, number: int) -> int:
        await commit_rows()
        self.is_admitted = True
        await workflow.execute_local_activity_method(
            BareCrm.send_request, workflow.info().workflow_id, start_to_close_timeout=SOON
        )
        await workflow.wait_condition(lambda: self._is_answered, timeout=timedelta(minutes=5))
        await commit_rows()
        workflow.upsert_search_attributes([PROGRESS.value_set(100)])
        return number

    @workflow.signal
    def take_answer(self) -> None:
        self._is_answered = True
