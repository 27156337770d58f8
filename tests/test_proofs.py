"""Proofs: who asks is proven by a key, and every way to cheat is refused."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError

from activities.access import claimed_sender
from activities.proofs import ProofSigner, ProofVerifier, generate_key_pair
from activities.refusals import refusal_of_error
from client.actions import ActionClient
from client.message_signer import KeyMessageSigner, VouchingMessageSigner
from domain import registry, wire
from domain.access import AccessPolicy
from domain.dryrun import DryRun
from domain.edge.messages import DEMAND_SIGNAL, LOOP_ROLE
from domain.edge.policies import DemandSignal, PolicyState
from domain.errors import Category, Refused
from domain.exposure import OWN_ACTION, CallAccess
from domain.identities import Identities, KnownSubject
from domain.mci.messages import VALIDATE_PLACE, HoldDecision
from domain.model import ReadQuery, Request
from domain.quotas import QuotaQuery, QuotasView
from domain.requests import PromoteBuild
from domain.wire import companion_id
from gateway.reads import GatewayClient
from providers.simulated import SimulatedCloud
from starter.mci.requests import send_decision
from starter.reads import read_status_page
from tests.patience import PATIENCE, answer_of
from tests.test_access import ACTIVITIES, call, make_value, offered
from tests.user import User, spec
from workers.service import WorkerService

ANN_PEM, ANN_KEY = generate_key_pair()
EVE_PEM, EVE_KEY = generate_key_pair()
GATE_PEM, GATE_KEY = generate_key_pair()
LAX_PEM, LAX_KEY = generate_key_pair()
WORKER_PEM, WORKER_KEY = generate_key_pair()
STRANGER_PEM, _ = generate_key_pair()
IDENTITIES = Identities.model_validate(
    {
        "subjects": {"ann": {"keys": [ANN_KEY], "groups": ["crew"]}, "eve": {"keys": [EVE_KEY]}},
        "issuers": {
            "gate": {"keys": [GATE_KEY], "vouches_for": ["http-*"], "groups": ["web"]},
            "lax": {"keys": [LAX_KEY], "vouches_for": ["*", "project:p1:lease:l1"]},
            "workers": {"keys": [WORKER_KEY], "vouches_for": ["self-healing"]},
        },
    }
)
ANN, EVE, GATE = (
    ProofSigner(pem, name, "default") for pem, name in ((ANN_PEM, "ann"), (EVE_PEM, "eve"), (GATE_PEM, "gate"))
)
EVERYBODY, WORKER = ProofSigner(LAX_PEM, "lax", "default"), ProofSigner(WORKER_PEM, "workers", "default")
VERIFY = ProofVerifier(lambda: IDENTITIES, "default")
REQUEST = Request(path="ns:default:mci:web", action="suspend", request_id="q1", spec={"a": 1})


def test_a_signed_message_proves_its_sender_and_their_groups() -> None:
    subject = VERIFY(ANN.sign(REQUEST, OWN_ACTION), OWN_ACTION, None)
    assert (subject.name, subject.groups, subject.proven) == ("ann", ("crew",), True)
    vouched = VERIFY(GATE.sign(REQUEST, OWN_ACTION, "http-ci"), OWN_ACTION, None)
    assert (vouched.name, vouched.groups, vouched.proven) == ("http-ci", ("web",), True)


def test_an_issuer_vouches_for_our_programs_only_if_it_lists_them_to_the_letter() -> None:
    assert VERIFY(EVERYBODY.sign(REQUEST, OWN_ACTION, "anybody"), OWN_ACTION, None).issuer == "lax"
    assert VERIFY(WORKER.sign(REQUEST, OWN_ACTION, "self-healing"), OWN_ACTION, None).proven
    for name in ("clock", "project:p1:lease:l1"):
        with pytest.raises(ValidationError, match="a program of ours, or a path"):
            Identities.model_validate({"subjects": {name: {"keys": [ANN_KEY]}}})


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
    "a program": (lambda: EVERYBODY.sign(REQUEST, OWN_ACTION, "self-healing"), "the key of lax does not prove"),
    "an object": (lambda: EVERYBODY.sign(REQUEST, OWN_ACTION, "project:p1:lease:l1"), "the key of lax does not prove"),
    "another issuer": (lambda: EVERYBODY.sign(REQUEST, OWN_ACTION, "gate"), "the key of lax does not prove"),
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
    verb = registry.verb_of(request)
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


async def test_a_request_whose_sender_is_not_proven_or_may_not_makes_no_call_to_a_provider(
    proving: User, client: Client, stack: WorkerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, policy = (
        list[str](),
        AccessPolicy.model_validate(
            {"roles": {"all": {"kinds": ["*"], "actions": ["*"]}}, "users": {"ann": ["all"], "eve": []}}
        ),
    )
    before = SimulatedCloud.list_missing_offers

    async def counted(self: SimulatedCloud, region: str, *rest: Any) -> list[str]:
        asked.append(region)
        return await before(self, region, *rest)

    monkeypatch.setattr(SimulatedCloud, "list_missing_offers", counted)
    monkeypatch.setattr(stack.authorizer, "policy", lambda: policy)
    path, region = proving.mci(), proving.region()
    groups = {"subGroups": [{"name": "a", "csp": "aws", "region": region, "specId": "large"}]}
    wanted = Request(path=path, action="create", spec=groups, request_id="forged")
    used = ANN.sign(wanted, OWN_ACTION)
    subject = VERIFY(used, OWN_ACTION, None)
    await stack.inventory.use_proof(subject.proof, "another run")
    forged = {
        "unsigned": wanted.model_copy(update={"requested_by": "ann"}),
        "altered": ANN.sign(wanted, OWN_ACTION).model_copy(update={"reason": "x"}),
        "not allowed": EVE.sign(wanted, OWN_ACTION),
        "used before": used,
        "on behalf of somebody": ANN.sign(wanted.model_copy(update={"on_behalf_of": "eve"}), OWN_ACTION),
    }
    for why, request in forged.items():
        assert not (await start_by_hand(client, request)).startswith("failed"), why
        refusal = await call(client, wire.READ_CHECK, request)
        assert refusal, why
        assert refusal.category is Category.FORBIDDEN, why
        needs = {"place": f"aws/{region}", "specs": ["large"], "images": []}
        refusal = await call(client, VALIDATE_PLACE, {**needs, "request": request.model_dump(mode="json")}, "cloud-aws")
        assert refusal, why
        assert await call(client, VALIDATE_PLACE, needs, "cloud-aws"), why
    assert region not in asked
    lines = [line.message for line in await stack.inventory.read_history(path, 100)]
    assert any("ann is not proven: it has no proof" in line for line in lines), lines
    assert (await proving.do(path, "create", spec=groups)).done == 1
    assert region in asked


async def tenants_seen(asking: ActionClient) -> list[str]:
    """All pages: the first ones may be full of tenants of other tests, and show none of them."""
    seen, after = list[str](), ""
    while True:
        page = await asking.run_query(wire.READ_QUOTAS, QuotaQuery(after=after, limit=500), QuotasView)
        seen += [row.used.tenant for row in page.tenants]
        if not (after := page.after):
            return seen


async def test_groups_of_the_identities_file_count_in_reads_through_every_door(
    proving: User, stack: WorkerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = f"ns:{proving.ns}"
    policy = AccessPolicy.model_validate(
        {
            "roles": {"own": {"kinds": ["*"], "actions": ["*"], "paths": [here]}},
            "groups": {"crew": {"roles": ["own"]}, "web": {"roles": ["own"]}},
            "deny": [{"who": ["night"], "actions": ["read"], "paths": [here], "why": "at night"}],
        }
    )
    known = IDENTITIES.model_copy(
        update={"subjects": {**IDENTITIES.subjects, "http-owl": KnownSubject(keys=[EVE_KEY], groups=["night"])}}
    )
    monkeypatch.setattr(stack.authorizer, "policy", lambda: policy)
    monkeypatch.setattr(stack.authorizer, "identify", ProofVerifier(lambda: known, "default"))
    path = proving.mci()
    await proving.do(path, "create", spec=spec(1))
    assert [view.path async for view in proving.asking.iterate_objects("mci", here)] == [path]
    assert await tenants_seen(proving.asking) == [here]
    signer = KeyMessageSigner(GATE)
    ratchet = GatewayClient(stack.client, stack.store_reads(), "", stack.authorizer, signer, stack.refusals)
    caller = ratchet.acting_for("http-ci")  # a token of the gateway's file; the gateway's entry gives it a group
    assert [view.path async for view in caller.iterate_objects("mci", here)] == [path]
    assert (await caller.read_object(path)).path == path
    with pytest.raises(Refused, match="a denial forbids it: at night"):
        await ratchet.acting_for("http-owl").read_object(path)
    with pytest.raises(Refused, match="the key of gate does not prove the name ann"):
        await ratchet.acting_for("ann").read_object(path)


async def test_a_status_for_a_command_of_the_home_folder_needs_the_proof_that_its_reads_need(
    proving: User, stack: WorkerService
) -> None:
    path = proving.mci()
    await proving.do(path, "create", spec=spec(1))
    signer = KeyMessageSigner(GATE)
    ratchet = GatewayClient(stack.client, stack.store_reads(), "", stack.authorizer, signer, stack.refusals)
    with pytest.raises(Refused, match="ann is not proven"):
        await read_status_page(ratchet.claiming_client("ann"), path)


async def test_every_judged_call_without_a_proof_is_refused(
    proving: User, client: Client, stack: WorkerService
) -> None:
    judged = {name for name, row in ACTIVITIES.items() if row.access is CallAccess.JUDGED}
    hints = {name: (queue, hint) for name, queue, hint in offered(stack) if name in judged}
    hints[wire.PROMOTE_BUILD] = (wire.BUILDS_QUEUE, PromoteBuild)
    assert set(hints) == judged
    forged = REQUEST.model_copy(update={"requested_by": "ann", "spec": None, "path": proving.mci()})
    async with stack._make_builds_worker():
        for name, (queue, hint) in hints.items():
            argument = make_value(hint) | {"requested_by": "ann"}
            if hint is Request:
                argument = forged.model_dump(mode="json")
            elif "request" in hint.model_fields:
                argument |= {"request": forged.model_dump(mode="json")}
            argument = argument if "requested_by" in hint.model_fields else argument | {"requested_by": None}
            argument = {key: value for key, value in argument.items() if value is not None}
            refusal = await call(client, name, argument, queue)
            assert refusal, name
            assert (refusal.category, "is not proven" in refusal.message) == (Category.FORBIDDEN, True), (name, refusal)


async def test_every_judged_message_without_a_proof_changes_nothing(proving: User, client: Client) -> None:
    path, policy = proving.mci(), f"org:{proving.ns}:policy:follow"
    ticket = await proving.admitted(path, "create", spec={**spec(1), "option": "hold"})
    rule = {"app": "shop", "cloudlets": [{"cloudlet": "berlin", "cluster": "c1"}], "min_active": 0}
    await proving.do(policy, "create", spec={"auto_provision": rule})
    await proving.until_status(path, "Prepared")
    action = client.get_workflow_handle(path, run_id=ticket.run)
    loop = client.get_workflow_handle(companion_id(policy, LOOP_ROLE))
    name = {"requested_by": "ann"}
    by_force = {**name, "path": path, "action": "terminate", "force": True}
    updates = {"continue": name, "withdraw": name, "preempt": by_force, "admit": by_force}
    judged = {name for name, row in registry.message_exposures().items() if row.access is CallAccess.JUDGED}
    assert {*updates, DEMAND_SIGNAL} == judged
    for word, message in updates.items():
        with pytest.raises(WorkflowUpdateFailedError) as failed:
            await action.execute_update(word, message)
        refusal = refusal_of_error(failed.value.cause)
        assert refusal, word
        assert word == "admit" or "is not proven" in refusal.message, (word, refusal)  # admit: it is no such request
    for word in ("continue", "withdraw"):
        await action.signal(word, name)
    demand = DemandSignal(cloudlet="berlin", clients=7)
    purpose = f"{DEMAND_SIGNAL} {policy}"
    right = ANN.sign(demand, purpose)
    later = ANN.sign(demand.model_copy(update={"clients": 5}), purpose)
    altered = right.model_copy(update={"clients": 99})
    other = ANN.sign(demand, f"{DEMAND_SIGNAL} org:{proving.ns}:policy:other")
    for message in ({"cloudlet": "berlin", "clients": 99, **name}, {"cpu": 100}, altered, other, right, later, right):
        await loop.signal(DEMAND_SIGNAL, message)
    async with asyncio.timeout(PATIENCE):
        while len(lines := [line for line in await proving.history(policy) if line.action == DEMAND_SIGNAL]) < 5:
            await asyncio.sleep(0.05)
    seen = await answer_of(loop, "memory", PolicyState)
    assert (seen.clients, seen.load.cpu) == ({"berlin": 5}, None)
    assert {line.effect for line in lines} == {"ignored"}
    assert any("was used before" in line.message for line in lines), lines
    assert (await proving.see(path)).status.startswith("Prepared")
    await send_decision(proving.asking, path, "withdraw", HoldDecision())
    await proving.asking.wait_for_outcome(path, ticket.run)
