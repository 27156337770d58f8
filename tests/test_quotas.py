"""Quotas as users meet them: a refusal that says what, how much and who; 429 over HTTP; the list of what is used."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from temporalio.client import Client

from client.actions import Ticket
from domain import wire
from domain.access import AccessPolicy
from domain.errors import Category, Refused
from domain.model import Refusal, Request
from domain.quotafile import Quotas
from domain.quotas import Quota, QuotaQuery, QuotasView
from gateway.dialects.apps import DialectErrorFormat
from gateway.problems import refusal_response
from gateway.reads import GatewayClient
from gateway.turns import AdmissionTurns
from starter.errors import ExitCode, to_printed_error
from store import quotas as store_quotas
from tests.user import User
from workers.access import load_quotas

TOO_MANY = Refused(Category.QUOTA, "too many", "wait", retry_after=7)


@pytest.fixture
def limited(user: User, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    """A user with a quota, whose minute does not pass."""
    now = time.time_ns() // 1_000
    monkeypatch.setattr(store_quotas, "read_database_micros", lambda _connection: now)
    quotas = Quotas(tenants={f"ns:{user.ns}": Quota(vms=2, requests_per_minute=3)})
    user.service.inventory.current_quotas = lambda: quotas
    yield user
    user.service.inventory.current_quotas = lambda: None


async def test_a_tenant_at_its_limit_is_told_what_how_much_and_who_may_raise_it(limited: User) -> None:
    await limited.do(limited.mci(), "create", spec=limited.groups(size=2))
    refusal = (await limited.ask(limited.mci("other"), "create", spec=limited.groups(size=1))).admission.refusal
    assert refusal
    assert refusal.category is Category.QUOTA
    assert refusal.message == f"ns:{limited.ns} has 2 of 2 VMs, and this needs 1 more"
    assert "RATCHET_QUOTAS_FILE" in refusal.hint
    view = await limited.asking.run_query(wire.READ_QUOTAS, QuotaQuery(tenant=f"ns:{limited.ns}"), QuotasView)
    [row] = view.tenants
    assert (row.used.vms, row.allowed.vms, row.used.requests, row.allowed.requests_per_minute) == (2, 2, 2, 3)


async def test_too_many_requests_of_a_minute_are_refused_with_the_time_to_wait(limited: User) -> None:
    await limited.do(limited.mci(), "create", spec=limited.groups(size=1))
    for action in ("suspend", "resume"):
        await limited.do(limited.mci(), action)
    ticket = await limited.ask(limited.mci(), "suspend")
    assert ticket.admission.refusal
    assert 0 < ticket.admission.refusal.retry_after <= 20


async def test_a_forced_action_that_waits_for_those_below_is_one_request(limited: User) -> None:
    """It asks for admission again and again until they have made way."""
    await limited.do(limited.mci(), "create", spec=limited.groups(size=2))
    await limited.fault("hang", "aws-1", verb="suspend", seconds=600)
    await limited.admitted(limited.vm("aws-1"), "suspend")
    await limited.until_delayed(limited.vm("aws-1"))
    assert (await limited.do(limited.mci(), "terminate", force=True)).status == "Terminated:2 (R:0/2)"
    await limited.heal_faults()


def test_a_rate_is_429_with_retry_after_and_a_quota_is_403() -> None:
    response = refusal_response(Refusal.from_error(TOO_MANY))
    assert (response.status_code, response.headers["Retry-After"]) == (HTTPStatus.TOO_MANY_REQUESTS, "7")
    full = refusal_response(Refusal(category=Category.QUOTA, message="full"))
    assert (full.status_code, "Retry-After" in full.headers) == (HTTPStatus.FORBIDDEN, False)


def test_a_rate_is_429_in_the_dialects_too() -> None:
    failure = DialectErrorFormat(render=lambda _failure: None).describe_error(TOO_MANY)  # type: ignore[arg-type,return-value]
    assert (failure.status, failure.headers) == (HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": "7"})


def test_the_exit_code_is_that_of_a_refusal() -> None:
    assert to_printed_error(TOO_MANY).exit is ExitCode.REFUSED


def test_the_example_is_valid() -> None:
    quotas = load_quotas(str(Path(__file__).parents[1] / "examples" / "quotas.yaml"))
    assert quotas.quota_of("ns:big") == Quota(vms=5000, objects=6000, open_actions=50, requests_per_minute=300)


async def test_a_gateway_starts_nothing_for_a_tenant_that_was_told_to_ask_later(
    limited: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = GatewayClient(client).acting_for("ann")
    started, start = list[str](), gateway.start_action

    async def counted(request: Request) -> Ticket:
        started.append(request.path)
        return await start(request)

    monkeypatch.setattr(gateway, "start_action", counted)
    monkeypatch.setattr(gateway._turns, "_clock", lambda: 100.0)  # its time to wait does not pass either
    path, requests = limited.mci(), ("create", "suspend", "resume", "suspend", "suspend")
    for action in requests:
        spec = limited.groups(size=1) if action == "create" else None
        ticket = await gateway.request_action(Request(path=path, action=action, spec=spec))
        if ticket.admission.refusal is None:
            await gateway.wait_for_outcome(path, ticket.run)
    assert ticket.admission.refusal
    assert (ticket.admission.refusal.category, 0 < ticket.admission.refusal.retry_after <= 20) == (Category.QUOTA, True)
    assert len(started) == len(requests) - 1, "the last one was answered without a workflow"
    nobody = AccessPolicy.model_validate({"roles": {}, "users": {}})
    monkeypatch.setattr(gateway.authorizer, "policy", lambda: nobody)
    await gateway.request_action(Request(path=path, action="suspend"))
    assert len(started) == len(requests), "who may not ask is not told about the quota: a worker answers"


def test_a_tenant_is_told_to_ask_later_until_its_time_is_over_and_no_other_tenant_is() -> None:
    now = [100.0]
    turns = AdmissionTurns(lambda: now[0])
    turns.note_answer("ns:a", Refusal.from_error(TOO_MANY))
    turns.note_answer("ns:b", Refusal(category=Category.QUOTA, message="full"))
    now[0] += 5
    told = turns.find_refusal("ns:a")
    assert told
    assert (told.message, told.retry_after) == ("too many", 2)
    assert turns.find_refusal("ns:b") is None
    now[0] += 2
    assert turns.find_refusal("ns:a") is None


def test_a_tenant_that_has_used_up_its_rate_passes_at_its_pace_and_not_in_bursts() -> None:
    now = [100.0]
    turns = AdmissionTurns(lambda: now[0])
    turns.note_answer("ns:a", Refusal(category=Category.QUOTA, message="too many", retry_after=1, pace=0.25))
    passed = []
    for _ in range(40):  # ten users ask again and again, for a second
        now[0] += 0.025
        passed.append(sum(turns.find_refusal("ns:a") is None for _user in range(10)))
        turns.note_answer("ns:a", None)  # what passed was admitted
    assert (sum(passed), max(passed)) == (4, 1)
    now[0] += 1
    assert [turns.find_refusal("ns:a") is None for _ in range(6)] == [True] * 4 + [False] * 2, "what is free is kept"
    now[0] += 60
    assert all(turns.find_refusal("ns:a") is None for _ in range(9)), "the minute is over"


def test_of_a_tenant_with_too_many_open_actions_one_request_asks_for_all() -> None:
    now, full = [100.0], Refusal(category=Category.QUOTA, message="full", retry_after=1)
    turns = AdmissionTurns(lambda: now[0])
    turns.note_answer("ns:a", full)
    now[0] += 1
    assert [turns.find_refusal("ns:a") is None for _ in range(3)] == [True, False, False]
    turns.note_answer("ns:a", full)
    assert turns.find_refusal("ns:a")
    now[0] += 1
    assert turns.find_refusal("ns:a") is None
    turns.note_answer("ns:a", None)
    assert all(turns.find_refusal("ns:a") is None for _ in range(3)), "there is room again"


async def test_who_may_not_ask_takes_no_turn_of_the_tenant(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, mine = GatewayClient(client).acting_for("mallory"), Request(path="ns:a:mci:x", action="resume")
    gateway._turns.note_answer("ns:a", Refusal(category=Category.QUOTA, message="full", retry_after=1))
    nobody = AccessPolicy.model_validate({"roles": {}, "users": {}})
    monkeypatch.setattr(gateway.authorizer, "policy", lambda: nobody)
    taken = list[str]()
    monkeypatch.setattr(gateway._turns, "find_refusal", taken.append)
    await gateway.request_action(mine)
    assert taken == []
