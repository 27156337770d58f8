"""Proofs: who asks is proven by a key, and every way to cheat is refused."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client, WorkflowFailureError

from activities.access import claimed_sender
from activities.proofs import ProofSigner, ProofVerifier, generate_key_pair
from activities.refusals import refusal_of_error
from client.actions import ActionClient
from client.message_signer import KeyMessageSigner, VouchingMessageSigner
from domain import registry, wire
from domain.dryrun import DryRun
from domain.errors import Category, Refused
from domain.exposure import OWN_ACTION
from domain.identities import Identities
from domain.model import ReadQuery, Request
from tests.test_access import call
from tests.user import User, spec
from workers.service import WorkerService

ANN_PEM, ANN_KEY = generate_key_pair()
EVE_PEM, EVE_KEY = generate_key_pair()
GATE_PEM, GATE_KEY = generate_key_pair()
STRANGER_PEM, _ = generate_key_pair()
IDENTITIES = Identities.model_validate(
    {
        "subjects": {"ann": {"keys": [ANN_KEY], "groups": ["crew"]}, "eve": {"keys": [EVE_KEY]}},
        "issuers": {"gate": {"keys": [GATE_KEY], "vouches_for": ["http-*"], "groups": ["web"]}},
    }
)
ANN, EVE, GATE = (
    ProofSigner(pem, name, "default") for pem, name in ((ANN_PEM, "ann"), (EVE_PEM, "eve"), (GATE_PEM, "gate"))
)
VERIFY = ProofVerifier(lambda: IDENTITIES, "default")
REQUEST = Request(path="ns:default:mci:web", action="suspend", request_id="q1", spec={"a": 1})


def test_a_signed_message_proves_its_sender_and_their_groups() -> None:
    subject = VERIFY(ANN.sign(REQUEST, OWN_ACTION), OWN_ACTION, None)
    assert (subject.name, subject.groups, subject.proven) == ("ann", ("crew",), True)
    vouched = VERIFY(GATE.sign(REQUEST, OWN_ACTION, "http-ci"), OWN_ACTION, None)
    assert (vouched.name, vouched.groups, vouched.proven) == ("http-ci", ("web",), True)


def signed() -> Request:
    return ANN.sign(REQUEST, OWN_ACTION)


def with_claims(change: dict[str, object]) -> Request:
    """A request whose proof says something else under the old signature."""
    message = signed()
    head, body, tail = message.proof.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = base64.urlsafe_b64encode(json.dumps({**claims, **change}).encode()).decode().rstrip("=")
    return message.model_copy(update={"proof": f"{head}.{forged}.{tail}"})


def without_signature() -> Request:
    message = signed()
    head = base64.urlsafe_b64encode(b'{"alg":"none","kid":"' + message.proof[:0].encode() + b'"}').decode().rstrip("=")
    return message.model_copy(update={"proof": f"{head}.{message.proof.split('.')[1]}."})


ATTACKS: dict[str, tuple[Callable[[], Request], str]] = {
    "unsigned": (lambda: REQUEST.model_copy(update={"requested_by": "ann"}), "it has no proof"),
    "another action": (lambda: signed().model_copy(update={"action": "terminate"}), "not what was signed"),
    "another object": (lambda: signed().model_copy(update={"path": "ns:default:mci:db"}), "not what was signed"),
    "another spec": (lambda: signed().model_copy(update={"spec": {"a": 2}}), "not what was signed"),
    "with force": (lambda: signed().model_copy(update={"force": True}), "not what was signed"),
    "another reason": (lambda: signed().model_copy(update={"reason": "x"}), "not what was signed"),
    "another request id": (lambda: signed().model_copy(update={"request_id": "q2"}), "not what was signed"),
    "another name": (lambda: signed().model_copy(update={"requested_by": "eve"}), "does not prove that name"),
    "the name of another": (lambda: EVE.sign(REQUEST, OWN_ACTION, "ann"), "the key of eve does not prove that name"),
    "vouched for too much": (lambda: GATE.sign(REQUEST, OWN_ACTION, "ann"), "the key of gate does not prove"),
    "claims changed": (lambda: with_claims({"sub": "eve"}), "altered, or signed with another key"),
    "expiry changed": (lambda: with_claims({"exp": 9e9}), "altered, or signed with another key"),
    "no algorithm": (without_signature, "a key that is not known here"),
    "unknown key": (lambda: ProofSigner(STRANGER_PEM, "ann", "default").sign(REQUEST, OWN_ACTION), "not known here"),
    "another namespace": (lambda: ProofSigner(ANN_PEM, "ann", "other").sign(REQUEST, OWN_ACTION), "the namespace"),
    "expired": (lambda: ProofSigner(ANN_PEM, "ann", "default", -60).sign(REQUEST, OWN_ACTION), "has expired"),
    "good for years": (lambda: ProofSigner(ANN_PEM, "ann", "default", 9e7).sign(REQUEST, OWN_ACTION), "has expired"),
    "for another call": (lambda: ANN.sign(REQUEST, "read_object"), "not what was signed"),
    "junk": (lambda: signed().model_copy(update={"proof": "x.y.z"}), "not known here"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_way_to_cheat_is_refused(attack: str) -> None:
    make, words = ATTACKS[attack]
    with pytest.raises(Refused, match=words) as refused:
        VERIFY(make(), OWN_ACTION, None)
    assert refused.value.category is Category.FORBIDDEN


def test_a_proof_is_judged_by_the_time_at_which_temporal_got_the_request() -> None:
    message = signed()
    now = datetime.now(UTC)
    VERIFY(message, OWN_ACTION, now)
    with pytest.raises(Refused, match="has expired"):
        VERIFY(message, OWN_ACTION, now + timedelta(hours=1))


@pytest.fixture
def proving(stack: WorkerService, user: User) -> Iterator[User]:
    """The stack, whose workers want proofs; the user is ann."""
    stack.authorizer.identify = ProofVerifier(lambda: IDENTITIES, user.asking.client.namespace)
    yield speaking(user, ANN)
    stack.authorizer.identify = claimed_sender


def speaking(user: User, signer: ProofSigner) -> User:
    return User(ActionClient(user.asking.client, message_signer=KeyMessageSigner(signer)), user.service, user.ns)


async def start_by_hand(client: Client, request: Request) -> str:
    """Starts an action as the Web UI does. Returns its refusal; empty if it was carried out."""
    verb = registry.kind_at(request.path).find_verb(request.action)
    try:
        await client.execute_workflow(
            verb.workflow,
            json.loads(request.model_dump_json(exclude_defaults=True)),
            id=request.path,
            task_queue=wire.ACTIONS_QUEUE,
        )
    except WorkflowFailureError as failure:
        refusal = refusal_of_error(failure.cause)
        return refusal.message if refusal and refusal.category is Category.FORBIDDEN else f"failed: {failure.cause}"
    return ""


async def test_a_proven_user_acts_and_reads_and_a_used_proof_is_good_for_nothing(proving: User, client: Client) -> None:
    path = proving.mci()
    assert (await proving.do(path, "create", spec=spec(1))).done == 2
    paper = ANN.sign(Request(path=path, action="suspend", request_id=uuid.uuid4().hex), OWN_ACTION)
    assert await start_by_hand(client, paper) == ""  # as pasted into the Web UI
    assert (await proving.do(path, "resume")).done == 2
    assert "used before" in await start_by_hand(client, paper)
    for attack in ("unsigned", "with force", "another name", "expired", "another namespace", "unknown key"):
        forged = ATTACKS[attack][0]().model_copy(update={"path": path, "spec": None})
        assert "is not proven" in await start_by_hand(client, forged), attack
    assert (await proving.see(path)).status == "Running:2 (R:2/2)"
    lines = await proving.asking.read_history(path)
    assert {line.requested_by for line in lines if line.effect == "applied"} == {"ann"}
    assert any("refused: " in line.message and "used before" in line.message for line in lines)


async def test_reads_and_calls_need_a_proof_too_and_it_is_good_for_one_call(proving: User, client: Client) -> None:
    path = proving.mci()
    await proving.do(path, "create", spec=spec(1))
    query = ANN.sign(ReadQuery(path=path), wire.READ_HISTORY)
    assert await call(client, wire.READ_HISTORY, query) is None
    refusals = {
        "replayed": await call(client, wire.READ_HISTORY, query),
        "unsigned": await call(client, wire.READ_HISTORY, ReadQuery(path=path, requested_by="ann")),
        "for another read": await call(client, wire.READ_TREE, ANN.sign(ReadQuery(path=path), wire.READ_HISTORY)),
        "for another call": await call(client, wire.VERIFY_ACTIVITY, ANN.sign(ReadQuery(path=path), wire.READ_TREE)),
        "altered": await call(
            client, wire.READ_HISTORY, ANN.sign(ReadQuery(path=path), wire.READ_HISTORY).model_copy(update={"limit": 7})
        ),
        "faults": await call(client, wire.CLOUD_FAULTS, {"requested_by": "ann"}),
        "cancel": await call(client, wire.CANCEL_ACTIVITY, {"requested_by": "ann", "path": path}),
    }
    assert all(refusal and refusal.category is Category.FORBIDDEN for refusal in refusals.values()), refusals
    nobody = User(ActionClient(client), proving.service, proving.ns)
    with pytest.raises(Refused, match="is not proven: it has no proof"):
        await nobody.asking.read_object(path)


async def test_a_gateway_vouches_for_its_callers_and_for_nobody_else(proving: User, client: Client) -> None:
    path = proving.mci()
    gate = speaking(proving, GATE).asking
    caller = User(gate.acting_for("http-ci"), proving.service, proving.ns)
    assert isinstance(caller.asking.message_signer, VouchingMessageSigner)
    assert (await caller.do(path, "create", spec=spec(1))).done == 2
    assert (await caller.asking.read_history(path))[-1].requested_by == "http-ci"
    ticket = await gate.acting_for("ann").request_action(Request(path=path, action="suspend"))
    assert ticket.admission.refusal
    assert "the key of gate does not prove that name" in ticket.admission.refusal.message


async def test_a_dry_run_uses_up_no_proof(proving: User) -> None:
    path = proving.mci()
    request = ANN.sign(Request(path=path, action="create", spec=spec(1), request_id="once"), OWN_ACTION)
    for _ in range(2):
        admission = await proving.asking.run_query(wire.READ_CHECK, request, DryRun)
        assert admission.grant
