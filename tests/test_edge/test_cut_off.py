"""Cloudlets whose workflow was terminated: whichever CRM is left, an admin can bring it up."""

from __future__ import annotations

import asyncio

import pytest

from domain.edge import messages
from domain.healing import ANY_ACTION, SweepOptions
from domain.model import ObjectView
from domain.wire import companion_id
from providers.edge.crm import ReferenceCrm
from tests.patience import PATIENCE
from tests.test_edge.kit import QUICK, Edge, fault


async def upgrade_terminated(edge: Edge) -> str:
    """A cloudlet with a cluster, whose upgrade was killed when CRMv2 had connected. Nobody has noticed yet."""
    path = await edge.up()
    await edge.user.do(edge.at("berlin", "c1"), "create", spec={})
    edge.set_faults(fault("silent", "upgrade"))
    current = await edge.notify_id()
    await edge.begun(path, "upgrade", spec={"version": "v2"})
    await edge.connect("berlin", {"notify_id": current + 1, "version": "v2"})
    await edge.until(path, "InitOk")
    await edge.client.get_workflow_handle(path).terminate("an operator, in the Web UI")
    return path


async def connected(edge: Edge, agent: ReferenceCrm, role: str = "next") -> None:
    async with asyncio.timeout(PATIENCE):
        while not agent.notify_id or (await crm(edge, role)).get("notify_id") != agent.notify_id:
            await asyncio.sleep(0.02)


async def crm(edge: Edge, role: str = "crm") -> dict[str, object]:
    return dict((await edge.see(edge.at("berlin"))).info.get(role) or {})


async def crmv1_ends(edge: Edge) -> None:
    agent, task, _ = edge.crms["berlin-v1"]
    agent.request_stop()
    await task
    async with asyncio.timeout(PATIENCE):
        while (await crm(edge)).get("version") == "v1" and (await crm(edge))["connected"]:
            await asyncio.sleep(0.02)


async def heal(edge: Edge) -> None:
    await edge.user.asking.run_sweep(SweepOptions(limits={ANY_ACTION: 0}))


async def repaired(edge: Edge, version: str) -> ObjectView:
    """Repair brings up what is there, and then all is as it was."""
    path = edge.at("berlin")
    assert (await edge.user.do(path, "repair")).status == "Ready"
    view = await edge.see(path)
    assert (view.info["crm"]["version"], view.spec["version"], "next" in view.info) == (version, version, False)
    assert (await edge.user.do(edge.at("berlin", "c1"), "delete")).status == "None"
    await edge.at_rest()
    assert (await edge.user.do(path, "delete")).status == "None"
    return view


@pytest.mark.parametrize("swept", [True, False], ids=["swept", "by the next request"])
async def test_a_crm_that_took_over_from_an_upgrade_that_was_terminated_can_be_brought_up(
    edge: Edge, swept: bool
) -> None:
    path = await upgrade_terminated(edge)
    await connected(edge, await edge.start_crm(version="v2"))
    await crmv1_ends(edge)
    if swept:
        await heal(edge)
        assert await edge.status(path) == "UpdateError"
        refused = await edge.user.refused(edge.at("berlin", "c1"), "delete")
        assert refused == f"Cloudlet {path} takes no changes now: its upgrade failed (UpdateError)"
    await repaired(edge, "v2")


async def test_a_crm_that_takes_over_after_its_upgrade_was_abandoned_can_be_brought_up(edge: Edge) -> None:
    path = await upgrade_terminated(edge)
    agent = await edge.start_crm(version="v2")
    await connected(edge, agent)
    await heal(edge)
    assert await edge.status(path) == "UpdateError"
    await crmv1_ends(edge)
    await connected(edge, agent, "crm")
    assert await edge.status(path) == "UpdateError"  # whatever it says: until repair
    await repaired(edge, "v2")


async def test_a_crm_of_an_upgrade_that_was_abandoned_is_believed_when_it_serves(edge: Edge) -> None:
    """CRMv1 was killed, and that is not noticed yet."""
    path = await upgrade_terminated(edge)
    await heal(edge)
    new = (await crm(edge, "next"))["notify_id"]
    link = edge.client.get_workflow_handle(companion_id(path, messages.LINK_ROLE))
    await link.signal(messages.CRM_RESPONSE, {"path": path, "state": "Ready", "notify_id": new})
    await edge.until_told(path, "it serves on; the state stays")
    view = await edge.see(path)
    assert (view.status, view.info["crm"]["notify_id"], "next" in view.info) == ("UpdateError", new, False)


async def test_crmv1_cleans_up_when_an_upgrade_that_was_terminated_is_repaired(edge: Edge) -> None:
    await upgrade_terminated(edge)
    await heal(edge)
    edge.set_faults()
    await repaired(edge, "v1")


async def test_a_crm_that_takes_over_while_the_cloudlet_is_repaired_is_brought_up(edge: Edge) -> None:
    path = await upgrade_terminated(edge)
    await connected(edge, await edge.start_crm(version="v2"))
    await unheard(edge, path)
    await heal(edge)
    edge.set_faults(fault("silent", version="v1"))
    ticket = await edge.begun(path, "repair")
    await crmv1_ends(edge)
    assert (await edge.end(ticket)).status == "Ready"
    assert (await crm(edge))["version"] == "v2"
    await edge.at_rest()


async def unheard(edge: Edge, path: str) -> None:
    """CRMv2 has said that it is Ready, and the action that it was meant for is dead."""
    link = edge.client.get_workflow_handle(companion_id(path, messages.LINK_ROLE))
    async with asyncio.timeout(PATIENCE):
        while True:
            sent = [
                event.signal_external_workflow_execution_initiated_event_attributes.signal_name
                for event in (await link.fetch_history()).events
            ]
            if messages.CRM_RESPONSE in sent:
                return
            await asyncio.sleep(0.02)


async def test_a_stranger_is_not_heard_after_an_upgrade_that_was_terminated(edge: Edge) -> None:
    path = await upgrade_terminated(edge)
    await heal(edge)
    await edge.connect("berlin", {"notify_id": 99, "version": "v3"})
    await edge.until_told(path, "version v3 connected, but the cloudlet runs v1")


async def test_a_cloudlet_whose_create_was_terminated_is_created_with_the_crm_that_is_there(edge: Edge) -> None:
    path = edge.at("berlin")
    await edge.begun(path, "create", spec={"patience": QUICK})
    await edge.connect("berlin", {"notify_id": 1, "version": "v1"})
    await edge.until(path, "InitOk")
    await edge.client.get_workflow_handle(path).terminate("an operator, in the Web UI")
    await connected(edge, await edge.start_crm(), "crm")
    await heal(edge)
    assert await edge.status(path) == "Offline"
    assert (await edge.user.do(path, "create", spec={"patience": QUICK})).status == "Ready"
    await edge.at_rest()
