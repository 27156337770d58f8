"""The HTTP gateway over a real server, a real worker and a real socket."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.service import RPCError, RPCStatusCode

from client.actions import ActionClient, Ticket
from client.errors import Unanswered
from domain.events import FIRST_CURSOR, READ_EVENTS, Event, EventPage, EventQuery
from domain.model import Admission, HistoryLine, Outcome
from domain.model import Request as ActionRequest
from gateway import server, turns
from gateway.app import build_gateway_app
from gateway.context import Gateway
from gateway.events import EventFeed
from gateway.reads import GatewayClient
from gateway.server import serve_app
from gateway.tokens import CallerTokens, TokenFile, generate_token, hash_token
from tests.patience import PATIENCE, settled
from workers.service import WorkerService

pytestmark = pytest.mark.stores("postgres")

SPEC = {"subGroups": [{"name": "front", "subGroupSize": 2, "csp": "aws", "region": "eu-central-1"}]}


@pytest.fixture
async def gateway(stack: WorkerService) -> Gateway:
    return Gateway(GatewayClient(stack.client, stack.store_reads()))


@pytest.fixture
async def url(gateway: Gateway) -> AsyncIterator[str]:
    async with serve_app(build_gateway_app(gateway), "127.0.0.1", 0) as found:
        yield found


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def web(ns: str) -> str:
    return f"ns:{ns}:mci:web"


async def create(http: httpx.AsyncClient, path: str, **headers: str) -> httpx.Response:
    return await http.post(f"/v1/objects/{path}/actions/create", json={"spec": SPEC}, headers=headers)


async def read_events(http: httpx.AsyncClient, count: int, after: str = "", **params: str) -> list[dict[str, Any]]:
    """The first events of a stream, each with its ID."""
    headers = {"Last-Event-ID": after} if after else {}
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE), http.stream("GET", "/v1/events", headers=headers, params=params) as stream:
        assert stream.status_code == 200, await stream.aread()
        current = ""
        async for line in stream.aiter_lines():
            if line.startswith("id: "):
                current = line.removeprefix("id: ")
            if line.startswith("data: "):
                found.append({"id": current, **json.loads(line.removeprefix("data: "))})
            if len(found) == count:
                break
    return found


async def test_an_action_is_carried_out_and_its_object_read(http: httpx.AsyncClient, web: str) -> None:
    created = await create(http, web)
    assert created.status_code == 200, created.text
    outcome = Outcome.model_validate(created.json())
    assert (outcome.result, outcome.status) == ("succeeded", "Running:2 (R:2/2)")
    view = (await http.get(f"/v1/objects/{web}")).json()
    assert view["status"] == "Running:2 (R:2/2)"
    vms = (await http.get("/v1/objects", params={"kind": "vm", "prefix": web, "limit": 1})).json()
    assert [vm["path"] for vm in vms["objects"]] == [f"{web}:vm:front-1"]
    rest = (await http.get("/v1/objects", params={"kind": "vm", "prefix": web, "after": vms["next"]})).json()
    assert [vm["path"] for vm in rest["objects"]] == [f"{web}:vm:front-2"]
    assert rest["next"] == ""
    for status, paths in (("Running", [vms["objects"][0]["path"], rest["objects"][0]["path"]]), ("Failed", [])):
        chosen = (await http.get("/v1/objects", params={"kind": "vm", "prefix": web, "status": status})).json()
        assert [vm["path"] for vm in chosen["objects"]] == paths
    tree = (await http.get(f"/v1/objects/{web}/tree")).json()
    assert tree["places"] == [{"placement": "aws/eu-central-1", "counts": {"Running": 2}}]
    lines = (await http.get(f"/v1/objects/{web}/history")).json()["lines"]
    assert lines[0]["requested_by"] == "http"
    later = (await http.get(f"/v1/objects/{web}/history", params={"after": lines[0]["seq"]})).json()["lines"]
    assert later == lines[1:]
    first = {"after": lines[0]["seq"], "limit": 1}
    assert (await http.get(f"/v1/objects/{web}/history", params=first)).json()["lines"] == lines[1:2], "no gap"
    assert (await http.get(f"/v1/objects/{web}/locks")).json() == {"locks": []}


async def test_who_does_not_wait_gets_the_run_and_asks_for_it(http: httpx.AsyncClient, web: str) -> None:
    answer = await http.post(
        f"/v1/objects/{web}/actions/create",
        json={"spec": {**SPEC, "option": "hold"}, "reason": "a trial"},
        headers={"Prefer": "respond-async"},
    )
    assert answer.status_code == 202, answer.text
    run = answer.headers["location"]
    seen = (await http.get(run)).json()
    assert seen["action"]["reason"] == "a trial"
    assert seen["action"]["outcome"] is None
    assert seen["progress"]["action"] == "create"
    busy = await http.post(f"/v1/objects/{web}/actions/suspend")
    assert busy.status_code == 409
    assert busy.headers["content-type"] == "application/problem+json"
    assert busy.json()["holders"][0]["action"] == "create"
    assert (await http.delete(run)).status_code == 202
    async with asyncio.timeout(PATIENCE):
        while not (ended := (await http.get(run)).json())["action"]["outcome"]:
            await asyncio.sleep(0.05)
    assert ended["action"]["outcome"]["result"] == "cancelled"
    again = await http.delete(run)
    assert (again.status_code, again.json()["detail"]) == (409, "the action has ended: cancelled")


async def test_the_same_key_is_the_same_request(http: httpx.AsyncClient, web: str) -> None:
    first, second = [await create(http, web, **{"Idempotency-Key": "once"}) for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["done"] == second.json()["done"] == 2
    assert (await create(http, web)).status_code == 409


async def test_a_dry_run_changes_nothing(http: httpx.AsyncClient, web: str) -> None:
    answer = await http.post(f"/v1/objects/{web}/actions/create", params={"dry_run": True}, json={"spec": SPEC})
    assert answer.status_code == 200
    assert answer.json()["grant"]["action"] == "create"
    described = str((await http.get("/openapi.json")).json()["paths"])
    assert "#/components/schemas/DryRun" in described, "the document says so"
    assert (await http.get(f"/v1/objects/{web}")).status_code == 404


async def test_bad_input_names_the_field(http: httpx.AsyncClient, web: str) -> None:
    cases = [
        await http.post(f"/v1/objects/{web}/actions/create", json={"spec": {"subGroups": "x"}}),
        await http.post(f"/v1/objects/{web}/actions/create", json={"speck": {}}),
        await http.post(f"/v1/objects/{web}/actions/create", content=b"{"),
        await http.post(f"/v1/objects/{web}/actions/fly"),
        await http.post("/v1/objects/nonsense/actions/create", json={"spec": SPEC}),
        await http.get("/v1/objects", params={"kind": "vm", "limit": 0}),
        await http.get("/v1/objects", params={"kind": "teapot"}),
        await http.get("/v1/events", headers={"Last-Event-ID": "yesterday"}),
    ]
    assert [answer.status_code for answer in cases] == [422] * len(cases), [answer.text for answer in cases]
    fields = [[error["field"] for error in answer.json()["errors"]] for answer in cases]
    assert (fields[0], fields[1], fields[4]) == (["subGroups"], ["speck"], ["path"])
    assert cases[5].json()["errors"][0]["field"] == "limit"
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl sends unless it is told otherwise
    as_form = await http.post(f"/v1/objects/{web}/actions/create", content=b"{}", headers=form)
    assert (as_form.status_code, as_form.json()["hint"]) == (422, "send the header Content-Type: application/json")
    missing = [
        await http.get(f"/v1/objects/{web}"),
        await http.get("/v1/kinds/teapot/states"),
        await http.get("/v1/actions/no-such-run"),
        await http.get("/v1/nothing"),
    ]
    assert [answer.status_code for answer in missing] == [404] * len(missing)
    assert all(answer.headers["content-type"] == "application/problem+json" for answer in (*cases, *missing))


async def test_an_unchanged_object_is_not_sent_again(http: httpx.AsyncClient, web: str) -> None:
    await create(http, web)
    first = await http.get(f"/v1/objects/{web}")
    tag = {"If-None-Match": first.headers["etag"]}
    assert (await http.get(f"/v1/objects/{web}", headers=tag)).status_code == 304
    await http.post(f"/v1/objects/{web}/actions/suspend")
    assert (await http.get(f"/v1/objects/{web}", headers=tag)).status_code == 200


async def test_events_are_followed_and_resumed_without_a_gap(http: httpx.AsyncClient, web: str) -> None:
    following = asyncio.create_task(read_events(http, 3, prefix=web))
    beginning = await read_events(http, 1, after="0")
    assert beginning, "there are events from the beginning of the store"
    while not following.done():  # the stream may begin after the first action: another one comes
        await create(http, web)
        await http.post(f"/v1/objects/{web}/actions/terminate")
        await http.post(f"/v1/objects/{web}/actions/delete")
    first = await following
    assert all(event["path"].startswith(web) for event in first)
    resumed = await read_events(http, 2, after=first[0]["id"], prefix=web)
    assert resumed == first[1:]
    only_vms = await read_events(http, 2, after="0", prefix=web, kind="vm")
    assert {event["path"].split(":")[-2] for event in only_vms} == {"vm"}
    gone = await http.get("/v1/events", headers={"Last-Event-ID": "999999999.999999999"})
    assert gone.status_code == 410


async def test_reads_and_streams_leave_nothing_in_temporal(http: httpx.AsyncClient, gateway: Gateway, web: str) -> None:
    await create(http, web)

    async def executions() -> int:
        return (await gateway.ratchet.client.count_activities("ActivityType STARTS_WITH 'read_'")).count

    before = await settled(executions)
    for _ in range(20):
        await http.get(f"/v1/objects/{web}")
        await http.get("/v1/objects", params={"kind": "mci"})
    await read_events(http, 1, after="0")
    assert READ_EVENTS in gateway.ratchet.store_reads
    assert await executions() == before


async def test_the_document_describes_every_action_and_the_page_shows_it(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    suspend = document["paths"]["/v1/objects/{path}/actions/suspend"]["post"]
    assert "mci" in suspend["summary"]
    body = document["paths"]["/v1/objects/{path}/actions/create"]["post"]["requestBody"]
    references = str(body)
    assert "#/components/schemas/" in references
    defined = document["components"]["schemas"]
    for name in set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document))):
        assert name in defined
    page = await http.get("/docs")
    assert "/v1/objects/{path}/actions/suspend" in page.text
    assert "<script" not in page.text
    kinds = (await http.get("/v1/kinds")).json()
    assert "mci" in [kind["name"] for kind in kinds]
    assert (await http.get("/v1/kinds/mci/schema")).json()["create"]["type"] == "object"
    assert (await http.get("/v1/kinds/vm/states")).json()


async def test_a_token_decides_who_asks(stack: WorkerService, tmp_path: Path, web: str) -> None:
    token, old = generate_token(), generate_token()
    file = tmp_path / "tokens.yaml"
    file.write_text(
        "tokens:\n"
        f"  - {{name: ci, hash: '{hash_token(token)}'}}\n"
        f"  - {{name: old, hash: '{hash_token(old)}', expires: 2020-01-01T00:00:00Z}}\n"
    )
    file.chmod(0o600)
    gateway = Gateway(GatewayClient(stack.client, stack.store_reads()), CallerTokens(TokenFile(file)))
    async with (
        serve_app(build_gateway_app(gateway), "127.0.0.1", 0) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        for wrong in ({}, {"Authorization": f"Bearer {old}"}, {"Authorization": "Bearer x"}, {"Authorization": token}):
            answer = await http.get("/v1/kinds", headers=wrong)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert (await http.get("/healthz")).status_code == 200
        right = {"Authorization": f"Bearer {token}"}
        assert (await create(http, web, **right)).status_code == 200
        lines = (await http.get(f"/v1/objects/{web}/history", headers=right)).json()["lines"]
        assert lines[0]["requested_by"] == "ci"
        file.write_text("tokens: []\n")
        assert (await http.get("/v1/kinds", headers=right)).status_code == 401
        file.write_text("tokens: [{name: ci}]\n")
        broken = await http.get("/v1/kinds", headers=right)
        assert (broken.status_code, broken.json()["detail"]) == (503, "the gateway's token file cannot be used")
    file.chmod(0o644)
    with pytest.raises(Exception, match="chmod 600"):
        TokenFile(file)


async def test_without_the_store_a_worker_answers(stack: WorkerService, web: str) -> None:
    async with (
        serve_app(build_gateway_app(Gateway(GatewayClient(stack.client))), "127.0.0.1", 0) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        assert (await http.get("/readyz")).status_code == 200
        assert (await create(http, web)).status_code == 200
        assert (await http.get(f"/v1/objects/{web}")).json()["kind"] == "mci"
        assert len(await read_events(http, 2, after="0", prefix=web)) == 2


async def test_the_body_of_an_answer_does_not_wait_for_its_headers(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nagle's algorithm held it back until the client acknowledged the headers: 40 ms for each kept-alive read."""
    made = server.DeadlineProtocol.connection_made
    accepted: list[socket.socket] = []

    def remember_socket(protocol: server.DeadlineProtocol, transport: asyncio.Transport) -> None:
        made(protocol, transport)
        accepted.append(transport.get_extra_info("socket"))

    monkeypatch.setattr(server.DeadlineProtocol, "connection_made", remember_socket)
    assert (await http.get("/healthz")).status_code == 200
    (connection,) = accepted
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_port_that_is_taken_is_said(gateway: Gateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Exception, match="cannot listen"):
        async with serve_app(build_gateway_app(gateway), "127.0.0.1", taken.getsockname()[1]):
            pass


async def test_a_feed_outlives_an_error_of_temporal() -> None:
    """Without the store a worker answers: what Temporal says when it is away must not end the feed for good."""
    line = HistoryLine(
        seq=1, path="ns:a:mci:web", at=datetime.now(UTC), actor="User", action="create", source="None", to="Running"
    )
    failures = [RPCError("away", RPCStatusCode.UNAVAILABLE, b"")] * 3

    class Away:
        async def run_query(self, activity: str, query: EventQuery, _answer: object) -> EventPage:
            if failures:
                raise failures.pop()
            events = [Event(id="0.1", line=line)] if activity == READ_EVENTS and query.after == "0.0" else []
            return EventPage(events=events, cursor="0.0")

    feed = EventFeed(Away(), 0.01)  # type: ignore[arg-type]
    async with feed.poll_while_following(), asyncio.timeout(PATIENCE):
        while failures:
            await asyncio.sleep(0.01)
        assert [event.id for event in await feed.wait_for_events(FIRST_CURSOR, PATIENCE)] == ["0.1"]


async def test_of_a_burst_each_request_has_its_turn(stack: WorkerService, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all of them waited for a worker at once, most would be given up before it comes to them."""
    now, most, go_on = 0, 0, asyncio.Event()

    async def admit(_client: ActionClient, request: ActionRequest) -> Ticket:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await go_on.wait()
        now -= 1
        return Ticket(request.path, "run", Admission())

    monkeypatch.setattr(ActionClient, "request_action", admit)
    client = GatewayClient(stack.client)
    request = ActionRequest(path="ns:a:mci:web", action="suspend")

    def ask(tenant: str) -> asyncio.Task[Ticket]:
        asked = request.model_copy(update={"path": f"ns:{tenant}:mci:web"})
        return asyncio.create_task(client.acting_for("u").request_action(asked))

    burst = [ask("loud") for _ in range(50)]
    while most < turns.TENANT_ADMISSIONS:
        await asyncio.sleep(0)
    burst += [ask(f"t{n}") for n in range(50)]  # a tenant's burst leaves turns to the others
    while most < turns.MAX_ADMISSIONS:
        await asyncio.sleep(0)
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.01)
    with pytest.raises(Unanswered, match="was not asked for"):
        await client.request_action(request)
    go_on.set()
    assert len(await asyncio.gather(*burst)) == 100
    assert most == turns.MAX_ADMISSIONS
