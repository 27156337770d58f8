"""A CRM's answer by hand, in the three ways of docs/edge.md; and a CRM behind a webhook."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from domain.edge import messages
from domain.wire import companion_id
from starter.command import run_command
from tests.cable import listening, read_request
from tests.test_edge.kit import QUICK, Edge, fault
from workers import embedded

Words = list[str]


async def by_starter(_edge: Edge, path: str, message: dict[str, Any], _server: embedded.EmbeddedServer) -> None:
    errors = [word for error in message["errors"] for word in ("--error", error)]
    assert await run_command(["crm", "respond", path, message["state"], *errors]) == 0


async def by_temporal(_edge: Edge, path: str, message: dict[str, Any], server: embedded.EmbeddedServer) -> None:
    words = ["workflow", "signal", "--workflow-id", path, "--name", "crm_response", "--input", json.dumps(message)]
    await shell([embedded.find_temporal_binary(), *words, "--address", server.address])


async def by_curl(_edge: Edge, path: str, message: dict[str, Any], server: embedded.EmbeddedServer) -> None:
    url = f"{server.http}/api/v1/namespaces/default/workflows/{path}/signal/crm_response"
    body = json.dumps({"input": [message]})
    await shell(["curl", "--fail", "--silent", "--show-error", "-X", "POST", url, "-d", body])


async def shell(words: Words) -> None:
    quiet = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=quiet, stderr=quiet)
    _, told = await process.communicate()
    assert process.returncode == 0, told.decode()


@pytest.fixture
def _commands_find_the_server(monkeypatch: pytest.MonkeyPatch, temporal_address: str, home: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    monkeypatch.setenv("RATCHET_HOME", str(home))


@pytest.mark.usefixtures("_commands_find_the_server")
@pytest.mark.parametrize("send", [by_starter, by_temporal, by_curl])
async def test_an_answer_can_be_given_by_hand(edge: Edge, server: embedded.EmbeddedServer, send: Any) -> None:
    await edge.up()
    edge.set_faults(fault("silent"))
    good, bad = edge.at("berlin", "good"), edge.at("berlin", "bad")
    notify_id = await edge.notify_id()
    first, second = await edge.begun(good, "create", spec={}), await edge.begun(bad, "create", spec={})
    await send(edge, good, {"state": "Ready", "errors": [], "notify_id": notify_id}, server)
    assert (await edge.end(first)).status == "Ready"
    errors = ["no space", 'not even "a little"']
    edge.set_faults()
    await send(edge, bad, {"state": "CreateError", "errors": errors, "notify_id": notify_id}, server)
    assert (await edge.end(second)).message == 'no space; not even "a little"'


@pytest.mark.usefixtures("_commands_find_the_server")
async def test_respond_says_what_became_of_the_answer_and_refuses_what_no_crm_would_say(
    edge: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    await edge.up()
    path = edge.at("berlin", "c1")
    await edge.user.do(path, "create", spec={})
    assert await run_command(["crm", "respond", path, "Ready"]) == 0
    assert "no action runs there: kept as ignored" in capsys.readouterr().err
    await edge.until_told(path, "no action is running on it")
    assert await run_command(["crm", "respond", path, "Dancing"]) == 2
    assert "unknown state 'Dancing' for ClusterInst" in capsys.readouterr().err
    assert await run_command(["crm", "respond", path, "CreateError", "--error", "x" * 5_000]) == 2
    assert await run_command(["crm", "respond", "one", "Ready"]) == 2
    assert await run_command(["crm", "respond", edge.at("nowhere", "c1"), "Ready"]) == 6
    runs = await edge.runs(path)
    await edge.stop_crm()
    await edge.until_missed(edge.at("berlin"))
    await asyncio.sleep(0)
    assert await run_command(["crm", "respond", path, "Deleting"]) == 0  # not even a link is there
    line = await edge.until_told(path, "no action is running on it")
    assert (line.to, await edge.runs(path)) == ("Deleting", runs)


ANSWERS = {"create": "Ready", "update": "Ready", "delete": "NotPresent", "ack": "Ready"}  # to each verb


def key(request: dict[str, Any]) -> tuple[Any, ...]:
    """The same for each attempt of one request."""
    return request["path"], request["verb"], request["epoch"], request["notify_id"]


@asynccontextmanager
async def hook(edge: Edge, http: str) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A CRM that knows nothing but HTTP: requests come as POST, answers go to Temporal's HTTP API."""
    seen: list[dict[str, Any]] = []
    tasks: list[asyncio.Task[None]] = []

    async def answer(request: dict[str, Any]) -> None:
        to = request["reply_to"] or companion_id(request["path"], messages.LINK_ROLE)
        message = {"state": ANSWERS[request["verb"]], "errors": [], "notify_id": request["notify_id"]}
        url = f"{http}/api/v1/namespaces/default/workflows/{to}/signal/crm_response"
        await shell(["curl", "--fail", "-sS", "-X", "POST", url, "-d", json.dumps({"input": [message]})])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = json.loads((await read_request(reader))[1])["requests"]
        new = [each for each in requests if key(each) not in map(key, seen)]  # a slow one is asked again
        seen.extend(new)
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()
        tasks.extend(asyncio.create_task(answer(request)) for request in new if request["verb"] in ANSWERS)

    async with listening(serve) as address:
        yield f"http://{address}/crm", seen
    await asyncio.gather(*tasks)


async def test_a_crm_behind_a_webhook_needs_nothing_but_http(edge: Edge, server: embedded.EmbeddedServer) -> None:
    path, cluster = edge.at("berlin"), edge.at("berlin", "c1")
    async with hook(edge, server.http) as (url, seen):
        spec = {"transport": "webhook", "url": url, "patience": QUICK}
        ticket = await edge.begun(path, "create", spec=spec)
        await edge.connect("berlin", {"notify_id": 5, "version": "v1", "instances": {}})
        assert (await edge.end(ticket)).status == "Ready"
        for action in ("create", "update", "delete"):
            outcome = await edge.user.do(cluster, action, spec={"nodes": 2} if action == "update" else None)
            assert outcome.result == "succeeded", outcome
    assert [each["verb"] for each in seen if each["path"] == cluster] == ["create", "update", "delete"]
    assert next(each["spec"] for each in seen if each["verb"] == "update") == {"nodes": 2, "flavor": "small"}


async def test_a_webhook_that_refuses_fails_the_action_with_its_answer(edge: Edge) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    path = edge.at("berlin")
    async with listening(refuse) as address:
        spec = {"transport": "webhook", "url": f"http://{address}/", "patience": {**QUICK, "cleanup": 0.2}}
        ticket = await edge.begun(path, "create", spec=spec)
        await edge.connect("berlin", {"notify_id": 1})
        await edge.until(path, "InitOk")
        await edge.say(path, "Ready", notify_id=1)
        outcome = await edge.end(ticket)
    assert "the webhook answered 403" in outcome.message
