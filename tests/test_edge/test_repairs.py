"""Incomplete work of a CRM, of an undo or of a repair: what stays on record, and what removes it."""

from __future__ import annotations

import asyncio

import pytest

from domain.model import ActionResult
from tests.cable import listening, read_request
from tests.patience import PATIENCE
from tests.test_edge.kit import QUICK, Edge, fault, words

FORCED = {"override": "ignore-crm-and-transient-state", "cascade": True}


async def cluster_with_apps(edge: Edge) -> tuple[str, list[str]]:
    cluster, apps = edge.at("berlin", "c1"), [edge.at("berlin", "c1", name) for name in ("blog", "shop")]
    await edge.user.do(cluster, "create", spec={})
    for app in apps:
        await edge.user.do(app, "create", spec={})
    return cluster, apps


@pytest.mark.parametrize("stuck", ["nothing", "app", "app at work", "app not created", "cluster", "cluster at work"])
async def test_a_cluster_that_is_repaired_away_takes_its_apps_along(edge: Edge, stuck: str) -> None:
    """Afterwards the names are free: nothing is left that nobody can delete."""
    await edge.up(cleanup=1)
    cluster, (blog, shop) = await cluster_with_apps(edge)
    if stuck != "nothing":
        edge.set_faults(fault("silent"))
        path, action, spec = {
            "app": (shop, "update", {"replicas": 2}),
            "app at work": (shop, "update", {"replicas": 2}),
            "app not created": (edge.at("berlin", "c1", "third"), "create", {}),
        }.get(stuck, (cluster, "delete", {"cascade": True}))
        await edge.begun(path, action, spec=spec)
        await edge.until(path if path != cluster else shop, f"{action.title()}Requested")
        if "at work" not in stuck:
            await edge.client.get_workflow_handle(path).terminate()
    outcome = await edge.user.do(cluster, "delete", spec=FORCED, force=True)
    assert outcome.result is ActionResult.SUCCEEDED, outcome
    there = [view.path for kind in ("cluster", "app") for view in await edge.listed(kind)]
    assert there == []
    await edge.at_rest()
    edge.set_faults()
    await cluster_with_apps(edge)
    for path in (blog, shop, cluster):
        assert (await edge.user.do(path, "delete")).status == "None"
    await edge.at_rest()


@pytest.mark.parametrize("override", ["none", "ignore-crm", "ignore-crm-errors", "ignore-transient-state"])
async def test_every_override_of_a_delete_takes_the_apps_along_or_leaves_all(edge: Edge, override: str) -> None:
    await edge.up(cleanup=1)
    cluster, apps = await cluster_with_apps(edge)
    edge.set_faults(fault("fail", "delete", apps[0], message="it is in use"))
    forced = override == "ignore-transient-state"
    outcome = await edge.user.do(cluster, "delete", spec={"override": override, "cascade": True}, force=forced)
    found = [await edge.status(path) for path in (cluster, *apps)]
    if override in ("ignore-crm", "ignore-crm-errors"):
        assert (outcome.result, found) == (ActionResult.SUCCEEDED, ["None", "None", "None"])
    else:
        assert (outcome.result, found) == (ActionResult.FAILED, ["Ready", "Ready", "None"])
        assert "it is in use" in outcome.message
        edge.set_faults()
        assert (await edge.user.do(apps[0], "delete")).status == "None"
    await edge.at_rest()


async def test_a_cascade_that_is_cancelled_leaves_every_app_ready_or_gone(edge: Edge) -> None:
    await edge.up(cleanup=1)
    cluster, apps = edge.at("berlin", "c1"), [edge.at("berlin", "c1", name) for name in ("a", "b")]
    await edge.user.do(cluster, "create", spec={})
    for app in apps:
        await edge.user.do(app, "create", spec={})
    edge.set_faults(fault("silent", "delete", apps[1]))
    ticket = await edge.begun(cluster, "delete", spec={"cascade": True})
    await edge.until(apps[0], "None")
    await edge.user.asking.cancel_action(cluster)
    assert (await edge.end(ticket)).result is ActionResult.CANCELLED
    assert [await edge.status(path) for path in (cluster, *apps)] == ["Ready", "None", "Ready"]
    await edge.at_rest()


async def test_an_update_whose_instance_is_gone_marks_it_missing_and_recreate_brings_it_back(edge: Edge) -> None:
    path, cluster = await edge.up(), edge.at("berlin", "c1")
    await edge.user.do(cluster, "create", spec={})
    edge.set_faults(fault("silent", "update"))
    ticket = await edge.begun(cluster, "update", spec={"nodes": 2})
    await edge.say(cluster, "Updating")
    await edge.until(cluster, "Updating")
    edge.platform().remove_instance(cluster)
    await edge.stop_crm()
    await edge.start_crm()
    outcome = await edge.end(ticket)
    assert "does not have it any more" in outcome.message
    assert outcome.status == "Ready"
    assert (await edge.see(cluster)).info["missing"] is True
    assert edge.things() == []  # nothing was put back behind our backs
    edge.set_faults()
    await edge.until(path, "Ready")
    assert (await edge.user.do(cluster, "recreate")).status == "Ready"
    assert edge.things() == ["c1"]
    await edge.at_rest()


async def test_an_undo_that_cannot_be_delivered_takes_its_row_with_a_note(edge: Edge) -> None:
    verbs: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await read_request(reader)
        refused = b'"verb":"create"' in body or b'"verb":"delete"' in body
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n" if refused else b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()
        verbs.append(body)

    path, cluster = edge.at("berlin"), edge.at("berlin", "c1")
    async with listening(serve) as address:
        spec = {"transport": "webhook", "url": f"http://{address}/", "patience": QUICK}
        ticket = await edge.begun(path, "create", spec=spec)
        await edge.connect("berlin", {"notify_id": 1})
        await edge.until(path, "InitOk")
        await edge.say(path, "Ready", notify_id=1)
        assert (await edge.end(ticket)).status == "Ready"
        outcome = await edge.user.do(cluster, "create", spec={})
    assert outcome.result is ActionResult.FAILED
    assert "the CRM could not be told to clean up: the webhook answered 403" in outcome.message
    assert await edge.status(cluster) == "None"
    assert words(await edge.walk(cluster)) == ["CreateRequested", "CreateError", "None"]
    await edge.at_rest()


async def test_create_on_what_is_in_create_error_is_refused_and_delete_leaves_it(edge: Edge) -> None:
    await edge.up()
    cluster = edge.at("berlin", "c1")
    edge.set_faults(fault("silent", times=1))
    await edge.begun(cluster, "create", spec={})
    await edge.until(cluster, "CreateRequested")
    await edge.client.get_workflow_handle(cluster).terminate()
    assert "is not allowed" in await edge.user.refused(edge.at("berlin", "c1"), "update", spec={})
    assert await edge.status(cluster) == "CreateError"
    assert await edge.user.refused(cluster, "create", spec={}) == "ClusterInst exists already, under CreateError"
    assert (await edge.user.do(cluster, "delete")).result is ActionResult.SUCCEEDED
    assert await edge.status(cluster) == "None"
    await edge.at_rest()


async def test_a_crm_that_goes_while_it_gathers_takes_the_cloudlet_offline_at_once(edge: Edge) -> None:
    path = edge.at("berlin")
    await edge.start_crm()
    edge.set_faults(fault("slow", "gather", seconds=60))
    ticket = await edge.begun(path, "create", spec={"patience": QUICK})
    await edge.until(path, "InitOk")
    await edge.stop_crm()
    await edge.until_missed(path)
    await edge.start_crm()
    edge.set_faults()
    assert (await edge.end(ticket)).status == "Ready"
    assert words(await edge.walk(path)) == ["Init", "InitOk", "Offline", "Init", "InitOk", "Ready"]
    await edge.at_rest()


async def test_after_a_failed_upgrade_the_first_crm_is_sent_all_data_again(edge: Edge) -> None:
    path, cluster = await edge.up(), edge.at("berlin", "c1")
    await edge.user.do(cluster, "create", spec={"nodes": 2})
    edge.platform().set_expected_specs({})
    edge.set_faults(fault("fail", "start", message="no image"))
    assert (await edge.user.do(path, "upgrade", spec={"version": "v2"})).status == "UpdateError"
    async with asyncio.timeout(PATIENCE):
        while cluster not in edge.platform().read_expected_specs():
            await asyncio.sleep(0.05)
    assert await edge.status(path) == "UpdateError"
    assert [line.action for line in await edge.user.history(path)][-1] == "resend"
