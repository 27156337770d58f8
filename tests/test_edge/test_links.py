"""A cloudlet's link: what it keeps when it continues as new, connections in pages, late answers, dead webhooks."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from domain.edge import messages
from domain.edge.messages import CrmRequest, CrmRequests, CrmVerb, split_into_pages
from domain.wire import companion_id
from providers.edge import crm
from tests.cable import listening, read_request
from tests.patience import PATIENCE, answer_of
from tests.test_edge.kit import QUICK, Edge, fault
from workflows.edge.link import LinkState


async def test_a_crm_that_lost_its_memory_is_told_all_specs_and_knows_them_again(edge: Edge) -> None:
    path, cluster = await edge.up(), edge.at("berlin", "c1")
    await edge.user.do(cluster, "create", spec={"nodes": 3})
    await edge.user.do(edge.at("berlin", "c1", "shop"), "create", spec={"replicas": 7})
    with closing(sqlite3.connect(edge.platform().file)) as memory:
        memory.executescript("UPDATE things SET spec = ''; DELETE FROM expected;")
    await edge.stop_crm()
    await edge.until_missed(path)
    await edge.start_crm()
    async with asyncio.timeout(PATIENCE):
        while edge.platform().list_instances()[cluster] != {"nodes": 3, "flavor": "small"}:
            await asyncio.sleep(0.05)
    assert edge.platform().read_expected_specs()[edge.at("berlin", "c1", "shop")] == {
        "image": "nginx:stable",
        "command": "",
        "replicas": 7,
    }
    await edge.at_rest()


async def test_all_data_is_known_when_the_last_of_its_pages_has_come_in_whatever_order(edge: Edge) -> None:
    await edge.up()
    agent, _, platform = edge.crms["berlin-v1"]
    specs = {edge.at("berlin", f"c{n}"): {"nodes": n % 9 + 1, "flavor": "x" * 150} for n in range(3_000)}
    some = split_into_pages(specs)
    assert len(some) > 1
    for number, page in reversed(list(enumerate(some, start=1))):
        assert len(json.dumps(page)) < 500_000
        assert set(platform.read_expected_specs()) != set(specs)
        spec = {"sending": "s", "at": 2**60, "page": number, "of": len(some), "instances": page}
        order = CrmRequest(
            path=edge.at("berlin"), verb=CrmVerb.ALL_DATA, notify_id=agent.notify_id, version="v1", spec=spec
        )
        await agent.crm_requests(CrmRequests(requests=[order]))
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        while platform.read_expected_specs() != specs:
            await asyncio.sleep(0.01)


async def test_a_crm_with_thousands_of_instances_connects_in_pages(edge: Edge) -> None:
    path, cluster = await edge.up(), edge.at("berlin", "c1")
    await edge.user.do(cluster, "create", spec={})
    await edge.stop_crm()
    await edge.until_missed(path)
    agent = await edge.start_crm()
    platform = edge.platform()
    for n in range(6_000):
        platform._db.execute("INSERT INTO things VALUES (?, '{}', 1)", (edge.at("berlin", f"x{n:04}"),))
    agent._lost.set()
    async with asyncio.timeout(PATIENCE):
        while len((await edge.see(path)).info.get("orphans", [])) < 100:
            await asyncio.sleep(0.1)
    await edge.until(path, "Ready")
    assert "missing" not in (await edge.see(cluster)).info


async def test_pages_of_which_one_never_comes_connect_nobody(edge: Edge) -> None:
    path = await edge.up()
    before = await edge.notify_id()
    await edge.connect("berlin", {"notify_id": before + 5, "page": 1, "of": 2})
    await edge.connect("berlin", {"notify_id": before + 6, "page": 2, "of": 2})
    await edge.connect("berlin", "and now something else")
    await edge.until_told(path, "not understood")
    assert await edge.notify_id() == before


async def test_an_answer_that_comes_too_late_is_kept_by_the_link_even_if_none_runs(edge: Edge) -> None:
    path, cluster = await edge.up(), edge.at("berlin", "c1")
    await edge.user.do(cluster, "create", spec={})
    current = await edge.notify_id()
    for number, state in enumerate(("Creating", "Updating"), start=1):
        await edge.client.start_workflow(
            messages.CLOUDLET_LINK,
            {"cloudlet": path},
            id=companion_id(path, messages.LINK_ROLE),
            task_queue="actions",
            start_signal=messages.CRM_RESPONSE,
            start_signal_args=[{"path": cluster, "state": state, "notify_id": current}],
        )
        async with asyncio.timeout(PATIENCE):
            while len(await edge.ignored(cluster)) < number:
                await asyncio.sleep(0.05)
        if edge.crms:
            await edge.stop_crm()
            await edge.until_missed(path)
            await edge.client.get_workflow_handle(companion_id(path, messages.LINK_ROLE)).result()
    kept = [line.to for line in await edge.user.history(cluster) if "no action is running on it" in line.message]
    assert sorted(kept) == ["Creating", "Updating"]


async def test_an_answer_sent_to_the_link_reaches_the_action_that_awaits_it(edge: Edge) -> None:
    path, cluster = await edge.up(), edge.at("berlin", "c1")
    edge.set_faults(fault("silent"))
    ticket = await edge.begun(cluster, "create", spec={})
    await edge.until(cluster, "CreateRequested")
    message = {"path": cluster, "state": "Ready", "notify_id": await edge.notify_id()}
    await edge.client.get_workflow_handle(companion_id(path, messages.LINK_ROLE)).signal(messages.CRM_RESPONSE, message)
    assert (await edge.end(ticket)).status == "Ready"


async def test_a_webhook_crm_that_dies_is_noticed_and_one_that_answers_again_is_not(edge: Edge) -> None:
    path, seen = edge.at("berlin"), asyncio.Queue[str]()
    answers = [b"HTTP/1.1 204 No Content\r\n\r\n"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await read_request(reader)
        writer.write(answers[0])
        await writer.drain()
        writer.close()
        seen.put_nowait(json.loads(body)["requests"][0]["verb"])

    async def until(verb: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while await seen.get() != verb:
                pass

    async with listening(serve) as address:
        patience = {**QUICK, "probe": 0.2}
        spec: dict[str, Any] = {"transport": "webhook", "url": f"http://{address}/", "patience": patience}
        ticket = await edge.begun(path, "create", spec=spec)
        await edge.connect("berlin", {"notify_id": 1})
        await until("ack")
        await edge.say(path, "Ready", notify_id=1)
        assert (await edge.end(ticket)).status == "Ready"
        answers[0] = b"HTTP/1.1 503 later\r\n\r\n"
        await until("ping")
        answers[0] = b"HTTP/1.1 204 No Content\r\n\r\n"
        for _ in range(4):
            await until("ping")
        assert await edge.status(path) == "Ready"  # one failure is none
    await edge.until(path, "Offline")
    assert (await edge.until_told(path, "3 posts failed")).action == "lost"
    refused = await edge.user.refused(edge.at("berlin", "c1"), "create", spec={})
    assert "it is Offline" in refused


async def test_a_link_that_begins_anew_keeps_its_crm_and_its_unread_messages(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crm, "RESUME_TIMEOUT", PATIENCE)  # a busy link opens the next session late
    path = await edge.up()
    current = await edge.notify_id()
    link = companion_id(path, messages.LINK_ROLE)
    first = (await edge.client.get_workflow_handle(link).describe()).run_id
    handle = edge.client.get_workflow_handle(link)
    gate = asyncio.Semaphore(50)

    async def junk(number: int) -> None:
        async with gate:
            await handle.signal(messages.CRM_RESPONSE, f"junk {number % 7}")

    await asyncio.gather(*(junk(number) for number in range(1_100)))
    await handle.signal(messages.CRM_RESPONSE, {"state": "Offline", "notify_id": 77})
    await edge.until_told(path, "without effect, not kept one by one")
    async with asyncio.timeout(PATIENCE):
        while (await handle.describe()).run_id == first:
            await asyncio.sleep(0.1)
    cluster = edge.at("berlin", "c1")
    assert (await edge.user.do(cluster, "create", spec={})).status == "Ready"
    async with asyncio.timeout(PATIENCE):
        while not any(
            each.activity_type.name == messages.CRM_SESSION and each.HasField("last_heartbeat_time")
            for each in (await handle.describe()).raw_description.pending_activities
        ):
            await asyncio.sleep(0.1)
    monkeypatch.setattr(crm, "RESUME_TIMEOUT", 0)
    agent = edge.crms["berlin-v1"][0]
    await agent._reconnect_unless_resumed(current)  # as when it hears that its first session is over
    assert not agent._lost.is_set()
    assert (await edge.status(path), await edge.notify_id()) == ("Ready", current)
    assert len(await edge.ignored(path)) < 60
    await edge.stop_crm()
    await edge.until_missed(path)  # the new session is watched as the old one was


async def test_a_link_that_somebody_else_starts_has_the_connections_of_the_inventory(edge: Edge) -> None:
    """With others it would lose them at once, and the cloudlet would be Offline."""
    path = await edge.up()
    link = edge.client.get_workflow_handle(companion_id(path, messages.LINK_ROLE))
    true = (await answer_of(link, "state", LinkState)).open
    await link.terminate()
    forged = {"cloudlet": path, "version": "v1", "transport": "webhook", "url": "http://127.0.0.1:1/", "probe": 0.1}
    claimed = [{**forged, "notify_id": number} for number in (true[0].notify_id, true[0].notify_id + 1)]
    state = {"cloudlet": path, "notify_id": true[0].notify_id, "open": claimed}
    again = await edge.client.start_workflow(messages.CLOUDLET_LINK, state, id=link.id, task_queue="actions")
    async with asyncio.timeout(PATIENCE):
        while not (seen := (await answer_of(again, "state", LinkState)).open):
            await asyncio.sleep(0.05)
    assert seen == true
    assert (await edge.see(path)).status == "Ready"
