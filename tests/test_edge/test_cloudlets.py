"""Cloudlets: maintenance with failover, delete, and which changes are refused meanwhile."""

from __future__ import annotations

import pytest

from client.explaining import explain_object
from domain.model import ActionResult
from starter.explain import describe_possible_actions, suggest_next_command
from tests.test_edge.kit import Edge, fault, words

pytestmark = pytest.mark.stores("postgres")


async def test_maintenance_keeps_everybody_out_until_it_ends(edge: Edge) -> None:
    path, cluster = await edge.up(), edge.at("berlin", "c1")
    await edge.user.do(cluster, "create", spec={})
    assert (await edge.user.do(path, "maintenance-start")).status == "UnderMaintenance"
    refused = await edge.user.refused(cluster, "update", spec={"nodes": 2})
    assert refused == f"Cloudlet {path} takes no changes now: it is in maintenance (UnderMaintenance)"
    await edge.stop_crm()
    await edge.start_crm()  # a CRM that is started again during maintenance does not end it
    await edge.until_told(path, "it serves on; the state stays")
    assert await edge.status(path) == "UnderMaintenance"
    assert (await edge.user.do(path, "maintenance-end")).status == "Ready"
    assert (await edge.user.do(cluster, "update", spec={"nodes": 2})).status == "Ready"
    assert words(await edge.walk(path))[3:] == ["MaintenanceStart", "UnderMaintenance", "NormalOperationInit", "Ready"]


async def test_a_crm_that_refuses_maintenance_leaves_the_cloudlet_as_it_was(edge: Edge) -> None:
    path = await edge.up()
    edge.set_faults(fault("fail", "maintain", message="not now"))
    outcome = await edge.user.do(path, "maintenance-start")
    assert (outcome.result, outcome.status, outcome.message) == (ActionResult.FAILED, "Ready", "not now")


async def test_failover_creates_the_apps_elsewhere_before_maintenance_begins(edge: Edge) -> None:
    path = await edge.up("berlin")
    await edge.up("munich")
    for cloudlet in ("berlin", "munich"):
        await edge.user.do(edge.at(cloudlet, "c1"), "create", spec={})
    await edge.user.do(edge.at("berlin", "c1", "shop"), "create", spec={"replicas": 4})
    outcome = await edge.user.do(path, "maintenance-start", spec={"failover": True})
    assert outcome.status == "UnderMaintenance"
    assert outcome.message == f"failed over: {edge.user.ns}/munich/c1/shop"
    moved = await edge.see(edge.at("munich", "c1", "shop"))
    assert (moved.status, moved.spec["replicas"]) == ("Ready", 4)
    assert edge.things("munich") == ["c1", "shop"]


async def test_failover_never_chooses_a_cloudlet_that_has_the_app(edge: Edge) -> None:
    path = await edge.up("berlin")
    for name in ("hamburg", "munich"):
        await edge.up(name)
    for cloudlet in ("berlin", "hamburg", "munich"):
        await edge.user.do(edge.at(cloudlet, "c1"), "create", spec={})
    for cloudlet in ("berlin", "hamburg"):
        await edge.user.do(edge.at(cloudlet, "c1", "shop"), "create", spec={})
    outcome = await edge.user.do(path, "maintenance-start", spec={"failover": True})
    assert outcome.message == f"failed over: {edge.user.ns}/munich/c1/shop"
    assert await edge.status(edge.at("munich", "c1", "shop")) == "Ready"


async def test_apps_that_cannot_fail_over_keep_the_cloudlet_out_of_maintenance(edge: Edge) -> None:
    path = await edge.up()
    await edge.user.do(edge.at("berlin", "c1"), "create", spec={})
    await edge.user.do(edge.at("berlin", "c1", "shop"), "create", spec={})
    outcome = await edge.user.do(path, "maintenance-start", spec={"failover": True})
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "Ready")
    assert "1 of 1 app could not fail over" in outcome.message


async def test_a_cloudlet_is_deleted_when_it_is_empty_and_its_crm_ends(edge: Edge) -> None:
    path = await edge.up()
    await edge.user.do(edge.at("berlin", "c1"), "create", spec={})
    assert "it has 1 cluster," in await edge.user.refused(path, "delete")
    await edge.user.do(edge.at("berlin", "c1"), "delete")
    assert (await edge.user.do(path, "delete")).status == "None"
    _, serving, platform = edge.crms.pop("berlin-v1")
    await serving  # it was told to shut down, and did
    platform.close()


async def test_a_cloudlet_without_a_crm_is_deleted_without_asking_and_says_so(edge: Edge) -> None:
    path = await edge.up()
    await edge.stop_crm()
    await edge.until_missed(path)
    assert "is not allowed for Cloudlet under Offline" in await edge.user.refused(path, "maintenance-start")
    refusal = (await edge.user.ask(path, "upgrade", spec={"version": "v2"})).admission.refusal
    assert refusal
    assert "upgrade is not allowed" in refusal.message
    cure = f"start its CRM: starter crm run --cloudlet {edge.user.ns}/berlin --version v1"
    assert refusal.hint.startswith(f"{cure}; {path} is Offline; allowed now: ")
    explained = await explain_object(edge.user.asking, path)
    assert explained.remedy == cure
    assert suggest_next_command(explained) == cure.removeprefix("start its CRM: ")
    assert describe_possible_actions(explained, "") == f"{cure}; or create, rekey, delete"
    assert (await edge.user.do(path, "delete")).message == "no CRM was connected: nobody was told"
