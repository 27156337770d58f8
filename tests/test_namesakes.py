"""Activities that write to the store are called within the worker of their workflow, and over no queue."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.refusals import refusal_of_error
from domain import wire
from domain.exposure import CallAccess
from tests.patience import PATIENCE
from tests.test_access import ACTIVITIES, make_value, offered
from workers.service import WorkerService


@workflow.defn(name=wire.CREATE_MCI)
class Namesake:
    """A workflow of somebody else that has the name of one of ours."""

    @workflow.run
    async def run(self, name: str, argument: Any) -> None:
        await workflow.execute_activity(
            name,
            argument,
            task_queue=wire.ACTIONS_QUEUE,
            start_to_close_timeout=timedelta(seconds=PATIENCE),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


async def test_the_writers_of_the_store_are_called_over_no_queue_not_even_by_the_name_of_a_workflow_of_ours(
    stack: WorkerService, client: Client
) -> None:
    """Without keys, a name is all that a worker has to know its own workflows by."""
    local = {name: hint for name, _, hint in offered(stack) if ACTIVITIES[name].access is CallAccess.LOCAL}
    assert {"begin", "advance", "finish", "permit", "crm_answered", "crm_lost", "accept_deploy"} <= set(local)
    queue = f"foreign-{uuid.uuid4().hex}"
    async with Worker(client, task_queue=queue, workflows=[Namesake], workflow_runner=UnsandboxedWorkflowRunner()):
        for name, hint in local.items():
            with pytest.raises(Exception) as caught:  # noqa: PT011 - the reason is three causes down
                await client.execute_workflow(
                    wire.CREATE_MCI, args=[name, make_value(hint)], id=f"{queue}-{name}", task_queue=queue
                )
            cause: BaseException | None = caught.value
            while cause and refusal_of_error(cause) is None:
                cause = cause.__cause__
            refusal = refusal_of_error(cause)
            assert refusal, name
            assert refusal.message == f"{name} is called over no queue by a worker of ours"
