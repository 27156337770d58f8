"""Policies at work: demand arrives as signals, and normal actions follow."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from domain.edge import messages
from domain.edge.policies import PolicyState
from domain.healing import HealFinding, SweepOptions
from domain.wire import companion_id
from starter.command import run_command
from tests.patience import PATIENCE, answer_of
from tests.test_edge.kit import Edge, fault

pytestmark = pytest.mark.stores("postgres")

SITES = [{"cloudlet": "berlin", "cluster": "c1"}, {"cloudlet": "munich", "cluster": "c1"}]


def policy_of(edge: Edge, name: str = "follow") -> str:
    return f"org:{edge.user.ns}:policy:{name}"


async def told(edge: Edge, message: Any, name: str = "follow") -> None:
    loop = edge.client.get_workflow_handle(companion_id(policy_of(edge, name), messages.LOOP_ROLE))
    await loop.signal(messages.DEMAND_SIGNAL, message)


async def reported(edge: Edge, clients: dict[str, int]) -> None:
    """Every tenth of a second, what is measured now."""
    while True:
        for cloudlet, number in list(clients.items()):
            await told(edge, {"cloudlet": cloudlet, "clients": number})
        await asyncio.sleep(0.1)


async def two_sites(edge: Edge) -> None:
    for cloudlet in ("berlin", "munich"):
        await edge.up(cloudlet)
        await edge.user.do(edge.at(cloudlet, "c1"), "create", spec={})


async def test_an_app_comes_and_goes_with_demand_by_normal_actions(edge: Edge) -> None:
    await two_sites(edge)
    path, app = policy_of(edge), edge.at("berlin", "c1", "shop")
    rule = {
        **{"app": "shop", "cloudlets": SITES, "interval": 0.3, "min_active": 0, "max": 1},
        **{"deploy_client_count": 10, "undeploy_client_count": 2, "spec": {"replicas": 2}},
    }
    assert (await edge.user.do(path, "create", spec={"auto_provision": rule})).status == "Active"
    clients = {"berlin": 50, "munich": 50}
    reports = asyncio.create_task(reported(edge, clients))
    await edge.until(app, "Ready")
    assert (await edge.see(app)).spec["replicas"] == 2
    history = await edge.user.history(app)
    assert (history[0].actor, history[0].requested_by, history[0].reason) == ("User", path, "demand")
    assert await edge.status(edge.at("munich", "c1", "shop")) == "None"  # the maximum is one
    clients["berlin"] = 0
    await edge.until(app, "None")
    await edge.until(edge.at("munich", "c1", "shop"), "Ready")  # now there is room where clients still ask
    clients["berlin"] = 50
    await edge.user.do(path, "update", spec={"auto_provision": {**rule, "cloudlets": SITES[:1]}})
    await edge.until(edge.at("munich", "c1", "shop"), "None")  # its cloudlet has left the policy
    del clients["munich"]
    await edge.until(app, "Ready")
    reports.cancel()
    await edge.until(app, "None")  # nobody reports any more: what was said has expired
    for nonsense, reason in (
        ({"cloudlet": "munich", "clients": 3}, "cloudlet 'munich' is not in the policy"),
        ({"clients": 3}, "it says neither"),
        ("lots", "not understood"),
        ({"cloudlet": "berlin", "clients": -1}, "not understood: clients"),
    ):
        await told(edge, nonsense)
        await edge.until_told(path, reason)
    assert (await edge.user.do(path, "delete")).status == "None"


async def test_a_site_that_fails_is_left_for_the_next_and_everything_is_kept(edge: Edge) -> None:
    await two_sites(edge)
    edge.set_faults(fault("fail", "create", "*:app:shop", message="no GPU here"), name="berlin")
    rule = {"app": "shop", "cloudlets": SITES, "interval": 600, "min_active": 1, "deploy_client_count": 5}
    await edge.user.do(policy_of(edge), "create", spec={"auto_provision": rule})
    line = await edge.until_told(policy_of(edge), "no GPU here")
    assert (line.actor, line.to) == ("Policy", "create")
    await edge.until(edge.at("munich", "c1", "shop"), "Ready")
    await edge.user.do(policy_of(edge), "delete")


async def test_a_cluster_grows_and_shrinks_with_its_load(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    await edge.up()
    cluster = edge.at("berlin", "c1")
    await edge.user.do(cluster, "create", spec={"nodes": 2})
    limits = {"min_nodes": 2, "max_nodes": 4, "target_cpu": 50, "stabilization_window": 0.5, "interval": 0.2}
    rule = {"cloudlet": "berlin", "cluster": "c1", **limits}
    await edge.user.do(policy_of(edge), "create", spec={"auto_scale": rule})
    monkeypatch.setenv("TEMPORAL_ADDRESS", edge.client.service_client.config.target_host)
    monkeypatch.setenv("RATCHET_HOME", str(home))
    assert await run_command(["demand", f"{edge.user.ns}/follow", "--cpu", "100"]) == 0
    await until_nodes(edge, cluster, 4)
    await told(edge, {"cpu": 52})  # inside the band
    loop = edge.client.get_workflow_handle(companion_id(policy_of(edge), messages.LOOP_ROLE))
    async with asyncio.timeout(PATIENCE):
        while (await answer_of(loop, "memory", PolicyState)).load.cpu != 52:
            await asyncio.sleep(0.05)
    await edge.user.do(policy_of(edge), "update", spec={"auto_scale": {**rule, "max_nodes": 5}})
    await asyncio.sleep(0.8)
    assert (await edge.see(cluster)).spec["nodes"] == 4
    await told(edge, {"cpu": 10})
    await until_nodes(edge, cluster, 2)
    assert edge.platform().list_instances()[cluster]["nodes"] == 2
    assert await run_command(["demand", f"{edge.user.ns}/follow"]) == 2
    assert await run_command(["demand", f"{edge.user.ns}/nobody", "--cpu", "1"]) == 6
    await edge.user.do(policy_of(edge), "delete")
    assert os.environ["RATCHET_HOME"] == str(home)


async def until_nodes(edge: Edge, cluster: str, nodes: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            view = await edge.see(cluster)
            if view.status == "Ready" and view.spec["nodes"] == nodes:
                return
            await asyncio.sleep(0.05)


async def test_a_loop_that_was_ended_by_hand_is_named_by_verify_and_started_by_a_sweep(edge: Edge) -> None:
    await two_sites(edge)
    path, app = policy_of(edge), edge.at("berlin", "c1", "shop")
    rule = {"app": "shop", "cloudlets": SITES, "interval": 0.3, "min_active": 0, "max": 1, "deploy_client_count": 10}
    await edge.user.do(path, "create", spec={"auto_provision": rule})
    loop = companion_id(path, messages.LOOP_ROLE)
    await edge.client.get_workflow_handle(loop).terminate("somebody's mistake")
    assert [promise.split()[:2] for promise in await edge.broken_promises()] == [["I12", f"{path}:"]]
    report = await edge.user.asking.run_sweep(SweepOptions())
    told = [(found.action, found.finding) for found in report.found if found.path == loop]
    assert told == [("demand loop", HealFinding.STARTED)]
    await told_demand(edge, app)
    assert await edge.broken_promises() == []
    await edge.user.do(path, "delete")
    again = await edge.user.asking.run_sweep(SweepOptions())
    assert [found for found in again.found if found.path == loop] == []


async def told_demand(edge: Edge, app: str) -> None:
    """Clients come, and the app follows them."""
    await told(edge, {"cloudlet": "berlin", "clients": 50})
    await edge.until(app, "Ready")


async def test_whoever_says_that_a_policy_has_changed_neither_ends_nor_changes_its_loop(edge: Edge) -> None:
    """Its interval goes on as well: else a word each second would keep it from ever acting."""
    await two_sites(edge)
    path, app = policy_of(edge), edge.at("berlin", "c1", "shop")
    rule = {"app": "shop", "cloudlets": SITES, "interval": 2, "min_active": 0, "max": 1, "deploy_client_count": 10}
    await edge.user.do(path, "create", spec={"auto_provision": rule})
    loop = edge.client.get_workflow_handle(companion_id(path, messages.LOOP_ROLE))
    run = (await loop.describe()).run_id
    other = {"auto_provision": {**rule, "app": "other", "min_active": 1}}
    words: list[list[Any]] = [[], ["junk"], [None], [{}], [{"spec": None}], [{"spec": other}], [1, 2]]

    async def forge() -> None:
        while True:
            for args in words:
                await loop.signal(messages.POLICY_CHANGED, args=args)
            await asyncio.sleep(0.3)

    forging = asyncio.create_task(forge())
    await told_demand(edge, app)
    forging.cancel()
    found = await loop.describe()
    assert (found.run_id, found.status) == (run, WorkflowExecutionStatus.RUNNING)
    assert await edge.status(edge.at("berlin", "c1", "other")) == "None"
    assert await edge.broken_promises() == []
    await edge.user.do(path, "delete")
    await loop.result()


async def test_a_loop_that_somebody_else_starts_remembers_nothing_and_has_the_id_of_its_policy(edge: Edge) -> None:
    """What it remembers are measurements, which only those who may report demand can send."""
    path = policy_of(edge)
    rule = {"auto_provision": {"app": "shop", "cloudlets": SITES, "interval": 600, "min_active": 0}}
    await edge.user.do(path, "create", spec=rule)
    own = companion_id(path, messages.LOOP_ROLE)
    await edge.client.get_workflow_handle(own).terminate()
    memory = PolicyState(clients={"berlin": 99}).model_dump(mode="json")
    forged = {"policy": path, "spec": rule, "principal": "root", "memory": memory, "until": "2100-01-01T00:00:00Z"}
    loop = await edge.client.start_workflow(messages.FOLLOW_DEMAND, forged, id=own, task_queue="actions")
    async with asyncio.timeout(PATIENCE):
        assert await answer_of(loop, "memory", PolicyState) == PolicyState()
        with pytest.raises(WorkflowFailureError) as caught:
            await edge.client.execute_workflow(messages.FOLLOW_DEMAND, forged, id=f"{own}-too", task_queue="actions")
    assert "::loop" in str(caught.value.cause)
    await edge.user.do(path, "delete")
