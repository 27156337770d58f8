"""Reads from workers: a read that a frozen worker took is sent once more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollActivityTaskQueueRequest
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from client import actions, queries
from client.actions import ActionClient
from client.errors import Unanswered
from domain import wire
from domain.model import ReadQuery, StepResult
from tests.patience import PATIENCE
from tests.user import User


@activity.defn(name=wire.READ_STORE)
async def answer_query(query: ReadQuery) -> StepResult:
    return StepResult(made=True)


async def ask_beside_frozen_worker(client: Client, queue: str, seconds: float) -> StepResult:
    asking = ActionClient(client)
    poll = PollActivityTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue), identity="frozen")
    frozen = asyncio.create_task(client.workflow_service.poll_activity_task_queue(poll, timeout=timedelta(seconds=60)))
    await asking.check_polled(queue)
    question = asyncio.create_task(
        asking.run_query(wire.READ_STORE, ReadQuery(), StepResult, seconds=seconds, queue=queue)
    )
    assert (await frozen).task_token  # and never answers
    async with Worker(client, task_queue=queue, activities=[answer_query]):
        return await question


async def test_a_question_that_a_frozen_worker_took_is_asked_once_more(client: Client, ns: str) -> None:
    for seconds in (3, 12):  # a busy machine may not answer the second in time, either
        with suppress(Unanswered):
            assert (await ask_beside_frozen_worker(client, f"frozen-{ns}-{seconds}", seconds)).made
            return
    assert (await ask_beside_frozen_worker(client, f"frozen-{ns}", 48)).made


async def test_a_question_that_was_tried_and_failed_is_not_asked_again(
    client: Client, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "READ_RETRY", RetryPolicy(maximum_attempts=1))  # else until its time is over
    asked: list[str] = []

    @activity.defn(name=wire.READ_STORE)
    async def failing(query: ReadQuery) -> StepResult:
        asked.append(str(activity.info().activity_id))
        raise ApplicationError("the disk is full")

    async with Worker(client, task_queue=f"failing-{ns}", activities=[failing]):
        with pytest.raises(Unanswered, match="the disk is full"):
            await ActionClient(client).run_query(
                wire.READ_STORE, ReadQuery(), StepResult, seconds=PATIENCE, queue=f"failing-{ns}"
            )
    assert len(set(asked)) == 1


async def test_an_action_that_cannot_be_asked_how_far_it_is_is_no_error(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker knows the type of this run: its task fails, and with it every query."""
    monkeypatch.setattr(actions, "PROGRESS_SECONDS", 1)
    client = user.asking.client
    await client.start_workflow("NobodyKnowsIt", id=user.mci(), task_queue=wire.ACTIONS_QUEUE)
    assert await user.asking.try_read_progress(user.mci()) is None
    assert await user.asking.read_current_step(user.mci()) == ""
    await client.get_workflow_handle(user.mci()).terminate(reason="the test is over")
