"""Sessions: `starter login` and the gateway turn an OIDC token into proofs; every way to forge one is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from temporalio.client import Client

from activities.access import RefusalLineBudget, claimed_sender
from activities.oidc import OidcVerifier
from activities.proofs import ProofSigner, ProofVerifier, generate_key_pair
from client.actions import ActionClient
from client.homefiles import LOGIN_FILE
from client.login import StoredLogin, load_session_signer, save_login
from client.message_signer import KeyMessageSigner
from domain import wire
from domain.access import AccessPolicy
from domain.errors import Category, Refused
from domain.events import FIRST_CURSOR, READ_EVENTS, EventPage, EventQuery
from domain.exposure import OWN_ACTION
from domain.identities import Identities, Login, LoginOrder, Principal, Session
from domain.model import Request
from gateway.app import build_gateway_app
from gateway.context import Gateway
from gateway.reads import GatewayClient
from gateway.server import serve_app
from gateway.tokens import CallerTokens
from starter.errors import ExitCode
from tests.issuer import EVE_KEY, EVE_PEM, GATE_PEM, ISSUER, NAME, WORKER_PEM, identities
from tests.patience import PATIENCE
from tests.test_access import call
from tests.test_cli.conftest import cli as cli
from tests.test_cli.shell import Cli
from tests.test_oidc import ATTACKS
from tests.test_oidc import key_file as key_file
from tests.test_oidc import known as known
from tests.user import User, spec
from workers.service import WorkerService

WORKER = ProofSigner(WORKER_PEM, "workers", "default")
GATE = ProofSigner(GATE_PEM, "gate", "default")
REQUEST = Request(path="ns:default:mci:web", action="suspend", request_id="q1")
LOGIN = Login(issuer="corp", groups=["team-a", "admins"])
SESSION_PEM, SESSION_KEY = generate_key_pair()


def session(certificate: str, pem: bytes = SESSION_PEM, name: str = NAME) -> Request:
    """A request that is signed with the key of a session."""
    return ProofSigner(pem, name, "default", certificate=certificate).sign(REQUEST, OWN_ACTION)


def certificate(login: Login = LOGIN, name: str = NAME, until: float = 600) -> str:
    return WORKER.certify(name, login, SESSION_KEY, time.time() + until)


@pytest.fixture
def verify(known: Identities) -> ProofVerifier:
    return ProofVerifier(lambda: known, "default")


def test_a_session_proves_its_subject_with_the_groups_of_token_and_issuer(verify: ProofVerifier) -> None:
    subject = verify(session(certificate()), OWN_ACTION, None)
    assert (subject.name, subject.groups, subject.issuer) == (NAME, ("staff", "team-a"), "corp")
    assert subject.proven
    vouched = verify(GATE.sign(REQUEST, OWN_ACTION, NAME, LOGIN), OWN_ACTION, None)
    assert (vouched.name, vouched.groups, vouched.issuer) == (NAME, ("staff", "team-a"), "corp"), "whatever the door"


EVE = ProofSigner(EVE_PEM, "eve", "default")
CHEATS: dict[str, tuple[Callable[[], Request], str]] = {
    "another key": (lambda: session(certificate(), pem=EVE_PEM), "altered, or signed with another key"),
    "another name": (lambda: session(certificate(), name="root@example.com"), "does not prove that name"),
    "ended": (lambda: session(certificate(until=-60)), "has expired"),
    "endless": (lambda: session(certificate(until=9e7)), "has expired"),
    "another namespace": (
        lambda: session(ProofSigner(WORKER_PEM, "workers", "other").certify(NAME, LOGIN, SESSION_KEY, time.time() + 9)),
        "the namespace",
    ),
    "signed by a subject": (
        lambda: session(EVE.certify(NAME, LOGIN, SESSION_KEY, time.time() + 9)),
        "the key of eve does not vouch for",
    ),
    "signed by itself": (
        lambda: session(ProofSigner(SESSION_PEM, NAME, "default").certify(NAME, LOGIN, SESSION_KEY, time.time() + 9)),
        "not known here",
    ),
    "for whom workers do not vouch": (
        lambda: session(certificate(name="eve"), name="eve"),
        "the key of workers does not vouch for eve",
    ),
    "an issuer that is gone": (lambda: session(certificate(Login(issuer="old"))), "old does not vouch for"),
    "a proof as a certificate": (lambda: session(EVE.sign(REQUEST, OWN_ACTION).proof), "altered, or signed"),
    "a certificate as a proof": (
        lambda: REQUEST.model_copy(update={"requested_by": NAME, "proof": certificate()}),
        "altered, or signed",
    ),
    "a subject's own login": (lambda: EVE.sign(REQUEST, OWN_ACTION, "eve", LOGIN), "the key of eve vouches for nobody"),
    "altered": (lambda: session(certificate()).model_copy(update={"force": True}), "not what was signed"),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_every_forged_session_is_refused(verify: ProofVerifier, cheat: str) -> None:
    make, words = CHEATS[cheat]
    with pytest.raises(Refused, match=words) as refused:
        verify(make(), OWN_ACTION, None)
    assert refused.value.category is Category.FORBIDDEN


def test_who_acts_later_needs_the_issuer_still(known: Identities) -> None:
    verify = ProofVerifier(lambda: known, "default")
    principal = verify(session(certificate()), OWN_ACTION, None).as_principal()
    assert principal == Principal(name=NAME, proven=True, issuer="corp", groups=["team-a"])
    assert verify.look_up_principal(principal).groups == ("staff", "team-a")
    gone = ProofVerifier(lambda: known.model_copy(update={"oidc": {}}), "default")
    with pytest.raises(Refused, match=r"corp does not vouch for ann@example\.com any more"):
        gone.look_up_principal(principal)


@pytest.fixture
def proving(stack: WorkerService, user: User, known: Identities) -> Iterator[User]:
    """The stack, whose workers believe the issuer and want proofs."""
    namespace = user.asking.client.namespace
    stack.authorizer.identify = ProofVerifier(lambda: known, namespace)
    stack._login.tokens = OidcVerifier(lambda: known, stack.inventory.record_access_attempt)
    stack._login.signer = ProofSigner(WORKER_PEM, "workers", namespace)
    yield user
    stack.authorizer.identify = claimed_sender
    stack._login.tokens = stack._login.signer = None


async def audit_messages(stack: WorkerService) -> list[str]:
    """What the audit trail says about logins by the issuer, and by nobody known."""
    names = ("login:corp", "login:unknown")
    return [line.message for name in names for line in await stack.inventory.read_history(name, 1000)]


async def test_whoever_logs_in_acts_in_the_proven_name(proving: User, stack: WorkerService) -> None:
    pem, key = generate_key_pair()
    order = LoginOrder(token=ISSUER.token(groups=["team-a"]), key=key)
    session = await proving.asking.run_query(wire.LOGIN, order, Session)
    assert (session.name, session.issuer, session.groups) == (NAME, "corp", ["team-a"])
    signer = ProofSigner(pem, session.name, proving.asking.client.namespace, certificate=session.certificate)
    ann = User(
        ActionClient(proving.asking.client, message_signer=KeyMessageSigner(signer)), proving.service, proving.ns
    )
    path = ann.mci()
    assert (await ann.do(path, "create", spec=spec(1))).done == 2
    lines = await ann.asking.read_history(path)
    assert {line.requested_by for line in lines} == {NAME}
    again = await proving.asking.run_query(wire.LOGIN, order, Session)  # a retry: the same token for the same key
    assert again.name == NAME
    thief = order.model_copy(update={"key": generate_key_pair()[1]})
    with pytest.raises(Refused, match="was used for another login"):
        await proving.asking.run_query(wire.LOGIN, thief, Session)
    assert any("was used for another login" in message for message in await audit_messages(stack))


async def test_refused_logins_are_in_the_audit_trail(
    proving: User, stack: WorkerService, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stack._login.tokens
    monkeypatch.setattr(stack._login.tokens, "_lines", RefusalLineBudget(lines=1000))
    for attack in ("no algorithm", "the public key as a secret", "expired", "another issuer", "an unknown key"):
        refusal = await call(client, wire.LOGIN, {"token": ATTACKS[attack][0](), "key": EVE_KEY})
        assert refusal, attack
        assert refusal.category is Category.FORBIDDEN, attack
        assert f"refused: {refusal.message}" in await audit_messages(stack), attack
    page = await proving.service.store_reads()[READ_EVENTS](EventQuery(after=str(FIRST_CURSOR), limit=1000))
    assert isinstance(page, EventPage)  # events can still be followed


async def test_without_an_issuer_or_a_key_a_login_says_what_is_missing(user: User, stack: WorkerService) -> None:
    order = LoginOrder(token=ISSUER.token(), key=EVE_KEY)
    with pytest.raises(Refused, match="know no OIDC issuer"):
        await user.asking.run_query(wire.LOGIN, order, Session)


async def test_the_gateway_believes_the_issuer_and_vouches_for_its_callers(
    proving: User, stack: WorkerService, known: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = proving.asking.client.namespace
    oidc = OidcVerifier(lambda: known, stack.inventory.record_access_attempt)
    monkeypatch.setattr(oidc, "_lines", RefusalLineBudget(lines=1000))
    policy = AccessPolicy.model_validate(
        {
            "roles": {"operator": {"kinds": ["*"], "actions": ["*"]}},
            "groups": {"team-a": {"roles": ["operator"], "members": []}},
        }
    )
    monkeypatch.setattr(stack.authorizer, "policy", lambda: policy)
    message_signer = KeyMessageSigner(ProofSigner(GATE_PEM, "gate", namespace))
    ratchet = GatewayClient(stack.client, stack.store_reads(), "", stack.authorizer, message_signer, stack.refusals)
    path = proving.mci()
    async with (
        serve_app(build_gateway_app(Gateway(ratchet, CallerTokens(oidc=oidc))), "127.0.0.1", 0) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        for attack in ("no algorithm", "the public key as a secret", "expired", "another audience", "an unknown key"):
            wrong = await http.get(f"/v1/objects/{path}", headers={"Authorization": f"Bearer {ATTACKS[attack][0]()}"})
            assert wrong.status_code == 401, attack
            assert f"refused: {wrong.json()['detail']}" in await audit_messages(stack), attack
        right = {"Authorization": f"Bearer {ISSUER.token(groups=['team-a'])}"}
        made = await http.post(f"/v1/objects/{path}/actions/create", json={"spec": spec(1)}, headers=right)
        assert made.status_code == 200, made.text
        lines = (await http.get(f"/v1/objects/{path}/history", headers=right)).json()["lines"]
        assert {line["requested_by"] for line in lines} == {NAME}
        other = {"Authorization": f"Bearer {ISSUER.token()}"}  # not in the team
        assert (await http.get(f"/v1/objects/{path}", headers=other)).status_code == 403
        lines = await stack.inventory.read_history(path, 100)
        assert any(f"refused: {NAME} may not read {path}" in line.message for line in lines), "a denied read has a line"
        denied = await http.post(f"/v1/objects/{path}/actions/suspend", json={}, headers=other)
        assert denied.status_code == 403, denied.text


async def test_a_gateway_whose_issuer_is_out_of_reach_says_so(proving: User, stack: WorkerService) -> None:
    oidc = OidcVerifier(lambda: identities("/nowhere/keys.json"))
    gateway = Gateway(GatewayClient(stack.client, stack.store_reads()), CallerTokens(oidc=oidc))
    async with (
        serve_app(build_gateway_app(gateway), "127.0.0.1", 0) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        answer = await http.get("/v1/kinds", headers={"Authorization": f"Bearer {ISSUER.token()}"})
        assert answer.status_code == 503


async def test_starter_login_and_logout(
    proving: User, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    nobody = await cli("whoami")
    assert nobody.code == ExitCode.FORBIDDEN, nobody.err
    missing = await cli("login")
    assert (missing.code, "RATCHET_OIDC_TOKEN" in missing.err) == (ExitCode.USAGE, True)
    monkeypatch.setenv("RATCHET_OIDC_TOKEN", ISSUER.token(exp=time.time() - 60))
    assert "it has expired" in (await cli("login")).err
    file = tmp_path / "token"
    file.write_text(ISSUER.token() + "\n")
    done = await cli("login --file", str(file))
    assert done.code == 0, done.err
    assert f"logged in as {NAME}, by corp, until" in done.out
    assert (tmp_path / "home" / LOGIN_FILE).stat().st_mode & 0o777 == 0o600
    known = await cli("whoami")
    assert (NAME in known.out, "proven" in known.out) == (True, True), known
    assert (await cli("logout")).code == 0
    assert (await cli("whoami")).code == ExitCode.FORBIDDEN


def test_a_login_that_has_ended_or_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    pem, _ = generate_key_pair()
    ended = Session(name=NAME, issuer="corp", expires=time.time() - 1, certificate="x")
    save_login(tmp_path, StoredLogin(namespace="default", key=pem.decode(), session=ended))
    with pytest.raises(Refused, match=r"the login of ann@example\.com has expired"):
        load_session_signer(tmp_path, "default")
    assert load_session_signer(tmp_path, "other") is None
    (tmp_path / LOGIN_FILE).chmod(0o644)
    with pytest.raises(Refused, match="can be read or changed by others"):
        load_session_signer(tmp_path, "default")
