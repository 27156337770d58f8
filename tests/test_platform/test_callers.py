"""With identities and a key on the workers, only their own workflows call activities: a name is no proof."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.proofs import ProofSigner, generate_key_pair
from activities.refusals import refusal_of_error
from client.actions import ActionClient
from client.message_signer import KeyMessageSigner
from domain import wire
from domain.errors import Category
from domain.model import ActionResult, Request
from tests.stack import ActionStack, opened
from tests.user import spec

PATH = "ns:web:mci:shop"
ANN_PEM, ANN_KEY = generate_key_pair()
WORKER_PEM, WORKER_KEY = generate_key_pair()


@pytest.fixture
async def proven(tmp_path: Path) -> AsyncIterator[ActionStack]:
    """A stack whose workers want proofs and have a key, with an MCI of ann's in it."""
    known = {
        "subjects": {"ann": {"keys": [ANN_KEY]}},
        "issuers": {"workers": {"keys": [WORKER_KEY], "vouches_for": ["clock", "self-healing", "recycle bin"]}},
    }
    (tmp_path / "identities.yaml").write_text(json.dumps(known))
    (tmp_path / "key.pem").write_bytes(WORKER_PEM)
    for file in ("identities.yaml", "key.pem"):
        (tmp_path / file).chmod(0o600)
    files = (str(tmp_path / "identities.yaml"), str(tmp_path / "key.pem"))
    async with opened(tmp_path / "home", subject="workers", identities=files[0], key_file=files[1]) as stack:
        yield stack


@workflow.defn(name=wire.CREATE_MCI)
class Namesake:
    """A workflow of somebody else, with the name of one of ours, on a queue of its own."""

    @workflow.run
    async def run(self, name: str, argument: dict[str, Any], queue: str) -> Any:
        return await workflow.execute_activity(
            name,
            argument,
            task_queue=queue,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


async def test_a_workflow_with_the_name_of_ours_on_a_foreign_worker_calls_nothing(proven: ActionStack) -> None:
    ann = KeyMessageSigner(ProofSigner(ANN_PEM, "ann", proven.client.namespace))
    asking = ActionClient(proven.client, message_signer=ann)
    ticket = await asking.request_action(Request(path=PATH, action="create", spec=spec(1)))
    assert (await asking.wait_for_outcome(PATH, ticket.run)).result is ActionResult.SUCCEEDED, "ours still work"
    before = len(await proven.stack.inventory.read_history(PATH, 100))
    calls: list[tuple[str, dict[str, Any], str]] = [
        (wire.READ_OBJECT, {"path": PATH}, wire.ACTIONS_QUEUE),
        (wire.READ_HISTORY, {"path": PATH}, wire.ACTIONS_QUEUE),
        ("validate_place", {"place": "aws/r0", "specs": ["small"], "images": []}, wire.cloud_queue("aws")),
        ("heal_holders", {"holders": []}, wire.ACTIONS_QUEUE),
    ]
    for call in calls:
        assert await refusal_of(proven.client, *call) == (Category.FORBIDDEN, True), call[0]
    assert len(await proven.stack.inventory.read_history(PATH, 100)) <= before + len(calls)


async def refusal_of(client: Client, *call: Any) -> tuple[Category, bool]:
    queue = f"foreign-{uuid.uuid4().hex}"
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=queue, workflows=[Namesake], workflow_runner=runner, build_id="theirs"):
        with pytest.raises(WorkflowFailureError) as caught:
            await client.execute_workflow(wire.CREATE_MCI, args=list(call), id=queue, task_queue=queue)
    cause: BaseException | None = caught.value
    while cause and refusal_of_error(cause) is None:
        cause = getattr(cause, "cause", None)
    refusal = refusal_of_error(cause)
    assert refusal, caught.value.cause
    return refusal.category, "is not called by a worker of ours" in refusal.message
