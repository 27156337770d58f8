"""Connect, reconnect, disconnect: a CRM's report is compared with the records, and running actions are informed."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import Client, WorkflowFailureError

from domain.edge import messages
from domain.edge.faults import CrmFault
from domain.edge.messages import CrmRequest
from domain.healing import HealFinding, SweepOptions
from domain.model import ActionResult
from domain.wire import companion_id
from providers.edge import crm
from tests.cable import wire_to
from tests.patience import PATIENCE
from tests.test_edge.kit import Edge, fault, words
from workers.crm import platform_file
from workers.plugin import temporal_plugin


async def test_a_cloudlet_is_created_by_the_rows_of_its_table(edge: Edge) -> None:
    path = await edge.up()
    assert await edge.walk(path) == [
        ("User", "None", "Init"),
        ("Controller", "Init", "InitOk"),
        ("CRM", "InitOk", "Ready"),
    ]


async def test_a_cloudlet_whose_crm_does_not_come_ends_offline_and_can_be_asked_for_again(edge: Edge) -> None:
    path = edge.at("berlin")
    outcome = await edge.user.do(path, "create", spec={"patience": {"connect": 0.3}})
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "Offline")
    assert "starter crm run" in outcome.message
    await edge.start_crm()
    await edge.until(path, "Ready")  # started manually: Offline -> Init by the CRM
    assert words(await edge.walk(path)) == ["Init", "Offline", "Init", "InitOk", "Ready"]


async def test_a_cloudlet_whose_data_cannot_be_gathered_is_offline(edge: Edge) -> None:
    agent = await edge.start_crm()
    edge.set_faults(fault("fail", "gather", message="the platform is down"))
    path = edge.at("berlin")
    outcome = await edge.user.do(path, "create", spec={"patience": {"connect": 30}})
    assert (outcome.status, outcome.message) == ("Offline", "gathering failed: the platform is down")
    assert agent.notify_id == 0 or edge.crms["berlin-v1"][1].done()
    edge.crms.pop("berlin-v1")[2].close()


async def test_a_crm_that_goes_takes_the_cloudlet_offline_and_back_when_it_returns(edge: Edge) -> None:
    path = await edge.up()
    await edge.user.do(edge.at("berlin", "c1"), "create", spec={})
    await edge.stop_crm()
    await edge.until_missed(path)
    assert await edge.status(edge.at("berlin", "c1")) == "Ready"  # instance states survive
    refused = await edge.user.refused(edge.at("berlin", "c2"), "create", spec={})
    assert refused == f"Cloudlet {path} takes no changes now: it is Offline: no CRM is connected"
    before = (await edge.see(path)).info["crm"]["notify_id"]
    await edge.start_crm()
    await edge.until(path, "Ready")
    assert (await edge.see(path)).info["crm"]["notify_id"] > before
    assert words(await edge.walk(path))[-4:] == ["Offline", "Init", "InitOk", "Ready"]
    assert "missing" not in (await edge.see(edge.at("berlin", "c1"))).info
    await edge.at_rest()


async def test_old_foreign_and_broken_connections_are_refused_and_kept(edge: Edge) -> None:
    path = await edge.up()
    current = await edge.notify_id()
    for message, reason in (
        ({"notify_id": current}, f"notify-id {current} is not newer than {current}"),
        ({"notify_id": max(1, current - 1)}, f"notify-id {max(1, current - 1)} is not newer"),
        ({"notify_id": current + 9, "version": "v9"}, "version v9 connected, but the cloudlet runs v1"),
        ({"notify_id": 0}, "not understood: notify_id"),
        ("hello", "not understood"),
        ({"notify_id": 5, "instances": {"a": 1}}, "not understood: instances.a"),
    ):
        await edge.connect("berlin", message)
        await edge.until_told(path, reason)
    assert await edge.status(path) == "Ready"
    assert await edge.notify_id() == current
    await edge.connect("nowhere", {"notify_id": 1})  # a cloudlet that nobody made
    await edge.until_told(edge.at("nowhere"), "there is no such Cloudlet")


async def test_only_the_current_connection_can_take_a_cloudlet_offline(edge: Edge) -> None:
    path = await edge.up()
    old = await edge.notify_id()
    await edge.stop_crm()
    await edge.start_crm()
    await edge.until_told(path, "its CRM is gone")
    await edge.until(path, "Ready")
    link = edge.client.get_workflow_handle(companion_id(path, messages.LINK_ROLE))
    await link.signal(messages.CRM_DISCONNECT, {"notify_id": old, "reason": "late news"})
    await link.signal(messages.CRM_DISCONNECT, "goodbye")
    await edge.until_told(path, "not understood")
    assert await edge.status(path) == "Ready"
    await link.signal(messages.CRM_DISCONNECT, {"notify_id": await edge.notify_id(), "reason": "the cable was cut"})
    await edge.until_told(path, "the cable was cut")
    await edge.until(path, "Ready")  # it lives, and introduces itself again


async def test_a_crm_that_lost_its_memory_finds_a_new_notify_id(edge: Edge) -> None:
    path = await edge.up()
    await edge.connect("berlin", {"notify_id": 1_000})
    async with asyncio.timeout(PATIENCE):
        while await edge.notify_id() < 1_000:
            await asyncio.sleep(0.05)
    await edge.stop_crm()
    platform_file(edge.home, path).unlink()
    await edge.start_crm()
    async with asyncio.timeout(PATIENCE):
        while not (await edge.notify_id() > 1_000 and await edge.status(path) == "Ready"):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("cloudlet", ["", "../..", "org:a", "ns:a:mci:b", "org:a:cloudlet:b:cluster:c"])
async def test_a_link_that_is_none_ends_at_once(edge: Edge, cloudlet: str) -> None:
    with pytest.raises(WorkflowFailureError):
        await edge.client.execute_workflow(
            messages.CLOUDLET_LINK, {"cloudlet": cloudlet}, id=f"{edge.user.ns}-{cloudlet}::link", task_queue="actions"
        )


async def test_an_instance_that_its_cloudlet_lost_is_marked_and_recreated_only_on_request(edge: Edge) -> None:
    path = await edge.up()
    lost, kept = edge.at("berlin", "c1"), edge.at("berlin", "c2")
    for cluster in (lost, kept):
        await edge.user.do(cluster, "create", spec={"nodes": 2})
    assert "is not missing" in await edge.user.refused(kept, "recreate")
    platform = edge.platform()
    platform.remove_instance(lost)
    platform.put_instance(edge.at("berlin", "stranger"), {}, "create", "")
    await edge.stop_crm()
    await edge.start_crm()
    await edge.until_told(lost, "the CRM does not have it: missing")
    await edge.until(path, "Ready")
    assert (await edge.see(lost)).info["missing"] is True
    assert (await edge.see(path)).info["orphans"] == [edge.at("berlin", "stranger")]
    await edge.until_told(path, f"orphan on the cloudlet, unknown to us: {edge.at('berlin', 'stranger')}")
    assert edge.things() == ["c2", "stranger"]  # nothing happens by itself
    assert sorted(promise.split()[0] for promise in await edge.broken_promises()) == ["I3", "I3"]
    assert (await edge.user.do(lost, "recreate")).status == "Ready"
    assert edge.platform().list_instances()[lost]["nodes"] == 2
    assert "missing" not in (await edge.see(lost)).info


@pytest.mark.parametrize(
    ("action", "spec", "broken", "platform"),
    [
        ("create", {}, "Creating", ["c1"]),
        ("update", {"nodes": 4}, "Updating", ["c1"]),
        ("delete", None, "Deleting", []),
    ],
)
async def test_a_crm_that_dies_at_work_is_asked_again_when_it_is_back(
    edge: Edge, action: str, spec: dict[str, int] | None, broken: str, platform: list[str]
) -> None:
    await edge.up()
    path = edge.at("berlin", "c1")
    if action != "create":
        await edge.user.do(path, "create", spec={})
    edge.set_faults(fault("slow", action, seconds=60, times=1))
    ticket = await edge.begun(path, action, spec=spec)
    await edge.until(path, broken)
    await edge.stop_crm()
    await edge.start_crm()
    outcome = await edge.end(ticket)
    assert outcome.result is ActionResult.SUCCEEDED
    assert edge.things() == platform
    if action == "update":
        assert edge.platform().list_instances()[path]["nodes"] == 4


async def test_work_that_was_done_when_the_crm_died_is_not_done_again(edge: Edge) -> None:
    await edge.up()
    path = edge.at("berlin", "c1")
    edge.set_faults(fault("silent", "create"))
    ticket = await edge.begun(path, "create", spec={})
    await edge.until(path, "CreateRequested")
    edge.platform().put_instance(
        path, {"nodes": 1, "flavor": "small"}, "create", ""
    )  # done, and died before it could say so
    await edge.stop_crm()
    await edge.start_crm()
    assert (await edge.end(ticket)).status == "Ready"
    assert edge.platform().list_applied_verbs(path) == ["create"]


async def test_an_update_of_what_the_cloudlet_has_lost_fails_and_says_so(edge: Edge) -> None:
    await edge.up()
    path = edge.at("berlin", "c1")
    await edge.user.do(path, "create", spec={})
    edge.set_faults(fault("silent", "update", times=1))
    ticket = await edge.begun(path, "update", spec={"nodes": 2})
    await edge.until(path, "UpdateRequested")
    edge.platform().remove_instance(path)
    await edge.stop_crm()
    await edge.start_crm()
    outcome = await edge.end(ticket)
    assert outcome.message.startswith("the CRM has connected again and does not have it any more")
    assert outcome.status == "Ready"


async def test_a_network_that_is_cut_and_mended_loses_nothing(
    edge: Edge, temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crm, "ACK_TIMEOUT_WHEN_HEARD", 10.0)  # the server may send an ack into the line that was cut
    async with wire_to(temporal_address) as cable:
        far = await Client.connect(cable.address, plugins=[temporal_plugin()])
        path = await edge.up(client=far)
        cluster = edge.at("berlin", "c1")
        jobs, worked = edge.crms["berlin-v1"][0]._jobs, asyncio.Event()

        async def work(request: CrmRequest, fault: CrmFault | None, doing: str, times: int) -> None:
            await jobs._send_report(request, {"state": doing}, times)
            await worked.wait()

        monkeypatch.setattr(jobs, "_simulate_work", work)
        ticket = await edge.begun(cluster, "create", spec={})
        await edge.until(cluster, "Creating")
        cable.cut()
        await edge.until_missed(path)
        assert await edge.status(cluster) == "Creating"
        worked.set()
        async with asyncio.timeout(PATIENCE):
            while edge.things() != ["c1"]:
                await asyncio.sleep(0.01)
        cable.mend()
        assert (await edge.end(ticket)).status == "Ready"
        await edge.until(path, "Ready")
        assert edge.platform().list_applied_verbs(cluster) == [
            "create"
        ]  # its work went on all the time, and was done once
        await edge.close()


async def test_a_link_that_was_ended_by_hand_is_named_by_verify_and_started_by_a_sweep(edge: Edge) -> None:
    path = await edge.up()
    link = companion_id(path, messages.LINK_ROLE)
    await edge.client.get_workflow_handle(link).terminate("somebody's mistake")
    await edge.stop_crm()  # nobody hears that it is gone
    assert await edge.status(path) == "Ready"
    assert [promise.split()[:2] for promise in await edge.broken_promises()] == [["I12", f"{path}:"]]
    report = await edge.user.asking.run_sweep(SweepOptions())
    told = [(found.action, found.finding) for found in report.found if found.path == link]
    assert told == [("link", HealFinding.STARTED)]
    await edge.until(path, "Offline")
    assert await edge.broken_promises() == []
    await edge.start_crm()
    await edge.until(path, "Ready")
