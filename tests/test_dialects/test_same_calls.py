"""A call of a dialect that comes again gets the answer of the first one, whatever others ask meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from client.launching import Ticket
from domain.errors import Refused
from domain.model import Admission, BeginRequest
from domain.model import Request as ActionRequest
from gateway.context import Gateway
from gateway.dialects import calls
from gateway.reads import GatewayClient
from tests.patience import PATIENCE
from tests.test_dialects.test_blazar import add_hosts, create, lease
from workers.service import WorkerService

pytestmark = pytest.mark.stores("postgres")


async def test_the_same_change_again_gets_the_answer_of_the_first(http: httpx.AsyncClient, gateway: Gateway) -> None:
    await add_hosts(http, "h1")
    made = await create(http, lease(name="changed twice"))
    path = f"project:{gateway.project}:lease:{made['id']}"
    change = {"end_date": "2199-03-01 00:00"}
    both = await asyncio.gather(*(http.put(f"/leases/{made['id']}", json=change) for _ in range(2)))
    again = await http.put(f"/leases/{made['id']}", json=change)
    assert [each.status_code for each in (*both, again)] == [200] * 3, [each.text for each in (*both, again)]
    lines = await gateway.ratchet.read_history(path)
    assert len({line.run for line in lines if line.action == "update"}) == 1, lines
    assert [(await http.delete(f"/leases/{made['id']}")).status_code for _ in range(2)] == [204, 204]
    other = await gateway.ratchet.request_action(ActionRequest(path=path, action="delete"))
    assert other.admission.refusal, "another request, which was refused since, does not hide the first"
    assert (await http.delete(f"/leases/{made['id']}")).status_code == 204


async def test_a_third_call_gets_the_answer_of_the_first_while_the_second_is_refused(
    stack: WorkerService, http: httpx.AsyncClient, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that was killed leaves the second call's run: it begins when the third call has joined it."""
    path = await delete_lease(http, gateway)
    is_held, has_joined = asyncio.Event(), asyncio.Event()
    begin, wait_for_admission = stack.inventory.begin_action, GatewayClient.wait_for_admission

    async def hold(claim: BeginRequest) -> Admission:
        if claim.request.path == path:
            is_held.set()
            await has_joined.wait()
        return await begin(claim)

    async def join(client: GatewayClient, *request: Any) -> Ticket:
        has_joined.set()
        return await wait_for_admission(client, *request)

    monkeypatch.setattr(stack.inventory, "begin_action", hold)
    monkeypatch.setattr(GatewayClient, "wait_for_admission", join)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        second = group.create_task(http.delete(f"/leases/{path.rpartition(':')[2]}"))
        await is_held.wait()
        third = group.create_task(http.delete(f"/leases/{path.rpartition(':')[2]}"))
    assert [each.result().status_code for each in (second, third)] == [204, 204], third.result().text


async def test_a_refused_call_gets_the_answer_of_the_first_while_a_third_one_waits(
    stack: WorkerService, http: httpx.AsyncClient, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third call sees the second one's run, which is over when it wants to join: it starts its own. That one is
    not judged yet when the second call looks for what has happened."""
    path = await delete_lease(http, gateway)
    is_held, third_asks, second_is_refused, third_begins, second_has_looked = (asyncio.Event() for _ in range(5))
    begin, request_action = stack.inventory.begin_action, calls.DialectCall._request_action
    asked: list[str] = []

    async def hold(claim: BeginRequest) -> Admission:
        if claim.request.path == path and not is_held.is_set():
            is_held.set()
            await third_asks.wait()
        elif claim.request.path == path:
            third_begins.set()
            await second_has_looked.wait()
        return await begin(claim)

    async def take_turns(call: calls.DialectCall, request: ActionRequest) -> Ticket:
        asked.append(request.request_id)
        if third_begins.is_set():
            second_has_looked.set()  # and asks what the third one has asked
        if len(asked) == 2:
            assert asked[0] == asked[1], "the third call wants to join the second one's run"
            third_asks.set()
            await second_is_refused.wait()
            while (newest := await gateway.ratchet.newest_run(path)) and newest.is_open:
                await asyncio.sleep(0.01)
        try:
            return await request_action(call, request)
        except Refused:
            if not second_is_refused.is_set():
                second_is_refused.set()
                await third_begins.wait()
            raise

    monkeypatch.setattr(stack.inventory, "begin_action", hold)
    monkeypatch.setattr(calls.DialectCall, "_request_action", take_turns)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        second = group.create_task(http.delete(f"/leases/{path.rpartition(':')[2]}"))
        await is_held.wait()
        third = group.create_task(http.delete(f"/leases/{path.rpartition(':')[2]}"))
        second.add_done_callback(lambda _: second_has_looked.set())
    assert [each.result().status_code for each in (second, third)] == [204, 204], second.result().text


async def delete_lease(http: httpx.AsyncClient, gateway: Gateway) -> str:
    """The path of a lease that was there, and was deleted by a first call."""
    await add_hosts(http, "h1")
    made = await create(http, lease(name="deleted thrice"))
    assert (await http.delete(f"/leases/{made['id']}")).status_code == 204
    return f"project:{gateway.project}:lease:{made['id']}"
