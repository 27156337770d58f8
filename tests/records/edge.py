"""Records the edge: every outcome of every action, a cloudlet's link, a policy at work."""

from __future__ import annotations

import asyncio

from client.actions import ActionClient
from domain.edge import messages
from domain.wire import companion_id
from tests.patience import PATIENCE
from tests.records.recorder import HistoryRecorder
from tests.test_edge.kit import Edge, edge_of, fault
from tests.user import User
from workers.service import WorkerService


async def record(recorder: HistoryRecorder, client: ActionClient, service: WorkerService) -> None:
    user = User(client, service, "recorded")
    async with edge_of(user, service.settings.home, client.client) as edge:
        path = await edge.up(latency=0.05, cleanup=1)
        await recorder.keep(path, "cloudlet-created")
        await _instances(recorder, edge)
        await _policy(recorder, edge)
        await _disturbed(recorder, edge)
        await _cloudlet(recorder, edge, path)
        await _guarded(recorder, edge)


async def _instances(recorder: HistoryRecorder, edge: Edge) -> None:
    cluster = edge.at("berlin", "c1")
    for action, spec in (("create", {}), ("update", {"nodes": 2}), ("delete", None)):
        await edge.user.do(cluster, action, spec=spec)
        await recorder.keep(cluster, f"{action}-succeeded")
    edge.set_faults(fault("fail", message="as it happens"))
    await edge.user.do(cluster, "create", spec={})
    await recorder.keep(cluster, "create-failed")
    await edge.user.do(cluster, "create", spec={"override": "ignore-crm-errors"})
    await recorder.keep(cluster, "create-tolerant")
    for action, spec in (("update", {"nodes": 3}), ("delete", None)):
        await edge.user.do(cluster, action, spec=spec)
        await recorder.keep(cluster, f"{action}-failed")
    edge.set_faults()
    await edge.user.do(edge.at("berlin", "c1", "shop"), "create", spec={})
    await edge.user.do(cluster, "delete", spec={"cascade": True})
    await recorder.keep(cluster, "delete-cascade")
    await edge.user.refused(edge.at("berlin", "c1", "shop"), "create", spec={})
    await recorder.keep(edge.at("berlin", "c1", "shop"), "create-refused")


async def _disturbed(recorder: HistoryRecorder, edge: Edge) -> None:
    cluster = edge.at("berlin", "c2")
    edge.set_faults(fault("silent"))
    ticket = await edge.begun(cluster, "create", spec={})
    await edge.say(cluster, "Nonsense")
    await edge.say(cluster, "Creating", progress={"task": 1, "of": 2, "step": "network"})
    await edge.until(cluster, "Creating")
    await edge.stop_crm()
    await edge.until(edge.at("berlin"), "Offline")
    edge_platform = await edge.start_crm()
    edge.set_faults()
    await edge.end(ticket)
    await recorder.keep(cluster, "create-resent")
    assert edge_platform.notify_id
    await edge.until(edge.at("berlin"), "Ready")  # it takes changes again
    edge.set_faults(fault("silent", times=1))
    ticket = await edge.begun(cluster, "update", spec={"nodes": 2})
    await edge.until(cluster, "UpdateRequested")
    await edge.user.asking.cancel_action(cluster)
    await edge.end(ticket)
    await recorder.keep(cluster, "update-cancelled")
    await edge.user.do(cluster, "delete")


async def _policy(recorder: HistoryRecorder, edge: Edge) -> None:
    policy = f"org:{edge.user.ns}:policy:scale"
    cluster = edge.at("berlin", "c3")
    await edge.user.do(cluster, "create", spec={})
    limits = {"max_nodes": 3, "target_cpu": 50, "stabilization_window": 0, "interval": 0.2}
    spec = {"auto_scale": {"cloudlet": "berlin", "cluster": "c3", **limits}}
    await edge.user.do(policy, "create", spec=spec)
    await recorder.keep(policy, "policy-created")
    await edge.client.get_workflow_handle(companion_id(policy, messages.LOOP_ROLE)).signal(
        messages.DEMAND_SIGNAL, {"cpu": 100}
    )
    async with asyncio.timeout(PATIENCE):
        while (await edge.see(cluster)).spec["nodes"] != 3:
            await asyncio.sleep(0.05)
    await edge.user.do(policy, "delete")
    await edge.client.get_workflow_handle(companion_id(policy, messages.LOOP_ROLE)).result()
    await recorder.keep(companion_id(policy, messages.LOOP_ROLE), "policy-followed")
    await edge.user.do(cluster, "delete")


async def _cloudlet(recorder: HistoryRecorder, edge: Edge, path: str) -> None:
    await edge.user.do(path, "maintenance-start", spec={"failover": True})
    await recorder.keep(path, "maintenance-started")
    await edge.user.do(path, "maintenance-end")
    await recorder.keep(path, "maintenance-ended")
    edge.set_faults(fault("fail", "start", message="no image"))
    await edge.user.do(path, "upgrade", spec={"version": "v2"})
    await recorder.keep(path, "upgrade-failed")
    await edge.user.do(path, "repair")
    await recorder.keep(path, "cloudlet-repaired")
    edge.set_faults(fault("silent", "upgrade"))
    ticket = await edge.begun(path, "upgrade", spec={"version": "v2"})
    await edge.say(path, "Updating")
    await edge.until(path, "Updating")
    second = await edge.notify_id() + 1
    await edge.connect("berlin", {"notify_id": second, "version": "v2"})
    await edge.until(path, "InitOk")
    await edge.say(path, "Ready", notify_id=second)
    await edge.end(ticket)
    await recorder.keep(path, "upgrade-succeeded")
    await recorder.keep(companion_id(path, messages.LINK_ROLE), "link")
    await edge.until(path, "Offline")
    await edge.user.do(path, "delete")
    await recorder.keep(path, "cloudlet-deleted")


async def _guarded(recorder: HistoryRecorder, edge: Edge) -> None:
    """A cloudlet that gets a token, is lied to, loses its CRM in the middle, and hears a goodbye."""
    path, cluster = await edge.up("munich"), edge.at("munich", "c1")
    await edge.user.do(path, "rekey", spec={"key": edge.token("munich").create_token()})
    await recorder.keep(path, "cloudlet-rekeyed")
    await edge.until(path, "Ready")
    edge.set_faults(fault("silent"), name="munich")
    ticket = await edge.begun(cluster, "create", spec={})
    await edge.say(cluster, "Ready")
    await edge.until_told(cluster, "does not prove")
    await edge.stop_crm("munich")
    await edge.until(path, "Offline")
    agent = await edge.start_crm("munich")
    edge.set_faults(name="munich")
    await edge.end(ticket)
    await recorder.keep(cluster, "create-proven")
    agent.request_stop()
    await edge.until(path, "Offline")
    link = companion_id(path, messages.LINK_ROLE)
    await edge.client.get_workflow_handle(link).result()
    await recorder.keep(link, "link-proven")
