"""With identities and a key on the workers, only their own workflows call activities: a name is no proof."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.access import Authorizer, describe_child
from activities.proofs import ProofSigner, ProofVerifier, generate_key_pair
from activities.refusals import refusal_of_error
from client.actions import ActionClient
from client.message_signer import KeyMessageSigner
from domain import registry, wire
from domain.access import Subject
from domain.errors import Category, Refused
from domain.identities import Identities
from domain.message import CHILD_PROOF
from domain.model import ActionResult, BeginRequest, Refusal, Request
from tests.stack import ActionStack, opened
from tests.test_platform.impostors import IMPOSTOR, Impostor, Namesake
from tests.user import spec

PATH = "ns:web:mci:shop"
ANN_PEM, ANN_KEY = generate_key_pair()
WORKER_PEM, WORKER_KEY = generate_key_pair()
LEASE = "project:p1:lease:night"
TERMINATE = registry.kind_at(PATH).find_verb("terminate").workflow
KNOWN = {
    "subjects": {"ann": {"keys": [ANN_KEY]}},
    "issuers": {"workers": {"keys": [WORKER_KEY], "vouches_for": ["clock", "self-healing", "recycle bin"]}},
}


@pytest.fixture
async def proven(tmp_path: Path) -> AsyncIterator[ActionStack]:
    """A stack whose workers want proofs and have a key, with an MCI of ann's in it."""
    (tmp_path / "identities.yaml").write_text(json.dumps(KNOWN))
    (tmp_path / "key.pem").write_bytes(WORKER_PEM)
    for file in ("identities.yaml", "key.pem"):
        (tmp_path / file).chmod(0o600)
    files = (str(tmp_path / "identities.yaml"), str(tmp_path / "key.pem"))
    async with opened(tmp_path / "home", subject="workers", identities=files[0], key_file=files[1]) as stack:
        yield stack


@pytest.mark.parametrize("key", ["", "other.pem"])
async def test_a_worker_that_wants_proofs_does_not_serve_without_a_key_of_its_own(tmp_path: Path, key: str) -> None:
    """Else whoever may write to the namespace could start children in the name of our programs."""
    (tmp_path / "other.pem").write_bytes(generate_key_pair()[0])
    (tmp_path / "identities.yaml").write_text(json.dumps(KNOWN))
    for file in ("identities.yaml", "other.pem"):
        (tmp_path / file).chmod(0o600)
    given = {"identities": str(tmp_path / "identities.yaml"), "key_file": str(tmp_path / key) if key else ""}
    with pytest.raises(Refused, match="no issuer in" if key else "no key of its own") as caught:
        async with opened(tmp_path / "home", None, **given):
            raise AssertionError("it serves")
    assert "starter key new workers" in caught.value.hint


async def test_a_workflow_with_the_name_of_ours_on_a_foreign_worker_calls_nothing(proven: ActionStack) -> None:
    await create_mci(proven)
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


async def test_no_foreign_workflow_starts_a_child_in_the_name_of_a_program(proven: ActionStack) -> None:
    await create_mci(proven)
    for name, parent in (("clock", "anything"), ("self-healing", "ratchet-heal"), (LEASE, LEASE)):
        order = {"path": PATH, "action": "terminate", "requested_by": name}
        refusal = await run_elsewhere(proven.client, IMPOSTOR, parent, TERMINATE, order)
        assert (refusal.category, "is not run by a worker of ours" in refusal.message) == (Category.FORBIDDEN, True)
    found = await proven.stack.inventory.read_object(PATH)
    assert found.status.startswith("Running"), found.status


def test_the_token_of_a_child_is_good_for_that_child_of_that_run_alone() -> None:
    namespace, signer = "default", ProofSigner(WORKER_PEM, "workers", "default")
    known = Identities.model_validate(KNOWN)
    authorizer = Authorizer(identify=ProofVerifier(lambda: known, namespace), wants_tokens=True)
    request = Request(path=PATH, action="terminate", requested_by=LEASE, on_behalf_of="ann")
    token = signer.sign_call(describe_child(LEASE, "run-1", PATH, request)).decode()
    claim = BeginRequest(
        request=request.model_copy(update={"proof": f"{CHILD_PROOF}{token}"}),
        run="child",
        at=datetime.now(UTC),
        workflow=PATH,
        parent=LEASE,
        parent_run="run-1",
    )
    assert authorizer.identify_requester(claim) == Subject(LEASE)
    others: list[dict[str, Any]] = [
        {"parent_run": "run-2"},
        {"parent": ""},
        {"workflow": f"{PATH}2"},
        *(
            {"request": claim.request.model_copy(update=change)}
            for change in (
                {"path": f"{PATH}2"},
                {"action": "suspend"},
                {"force": True},
                {"on_behalf_of": "bob"},
                {"spec": {"a": 1}},
                {"proof": ""},
                {"proof": CHILD_PROOF},
                {"proof": claim.request.proof[:-8] + "AAAAAA=="},
            )
        ),
    ]
    for change in others:
        with pytest.raises(Refused) as caught:
            authorizer.identify_requester(claim.model_copy(update=change))
        assert caught.value.category is Category.FORBIDDEN, change


async def create_mci(stack: ActionStack) -> None:
    ann = KeyMessageSigner(ProofSigner(ANN_PEM, "ann", stack.client.namespace))
    asking = ActionClient(stack.client, message_signer=ann)
    ticket = await asking.request_action(Request(path=PATH, action="create", spec=spec(1)))
    assert (await asking.wait_for_outcome(PATH, ticket.run)).result is ActionResult.SUCCEEDED, "ours still work"


async def refusal_of(client: Client, *call: Any) -> tuple[Category, bool]:
    refusal = await run_elsewhere(client, wire.CREATE_MCI, f"foreign-{uuid.uuid4().hex}", *call)
    return refusal.category, "is not called by a worker of ours" in refusal.message


async def run_elsewhere(client: Client, kind: str, run: str, *arguments: Any) -> Refusal:
    """Runs a workflow of somebody else, on their worker. Returns the refusal that it gets."""
    queue = f"foreign-{uuid.uuid4().hex}"
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[Namesake, Impostor],
        workflow_runner=UnsandboxedWorkflowRunner(),
        build_id="theirs",
    )
    async with worker:
        with pytest.raises(WorkflowFailureError) as caught:
            await client.execute_workflow(kind, args=list(arguments), id=run, task_queue=queue)
    cause: BaseException | None = caught.value
    while cause and refusal_of_error(cause) is None:
        cause = getattr(cause, "cause", None)
    refusal = refusal_of_error(cause)
    assert refusal, caught.value.cause
    return refusal
