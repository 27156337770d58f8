"""More messages than Temporal lets one run hear: who listens begins anew in time, and what it kept stays short."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.service import RPCError, RPCStatusCode

from domain.edge import messages as wire
from domain.edge.floods import HOUR, KEPT_PER_HOUR, SIGNALS, Budget
from domain.edge.policies import Memory
from domain.wire import companion
from tests.patience import PATIENCE
from tests.test_edge.kit import Edge

MANY = 10_500  # Temporal's limit is 10,000 for each run
SOME = 2 * SIGNALS + 100


async def flooded(edge: Edge, workflow_id: str, signal: str, messages: list[Any]) -> None:
    """All of them, as quickly as Temporal takes them."""
    handle, gate = edge.client.get_workflow_handle(workflow_id), asyncio.Semaphore(40)

    async def send(message: Any) -> None:
        async with gate:
            while True:
                try:
                    return await handle.signal(signal, message)
                except RPCError as error:
                    if error.status not in (RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.INVALID_ARGUMENT):
                        raise
                    await asyncio.sleep(0.1)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(send, messages))


async def test_a_link_outlives_a_flood_and_serves_on(edge: Edge) -> None:
    path = await edge.up()
    current, cluster = await edge.notify_id(), edge.at("berlin", "c1")
    junk: list[Any] = ["junk", {"state": "Ready", "notify_id": 0}, {"no": "state"}]
    await flooded(edge, companion(path, wire.LINK), wire.CRM_RESPONSE, [junk[n % 3] for n in range(MANY)])
    assert (await edge.user.do(cluster, "create", spec={})).status == "Ready"
    await edge.connect("berlin", {"notify_id": current + 1_000})
    async with asyncio.timeout(PATIENCE):
        while await edge.notify_id() <= current:
            await asyncio.sleep(0.1)
    assert len(await edge.ignored(path)) < KEPT_PER_HOUR + 50  # and what each run says of the rest


async def test_a_policy_outlives_a_flood_and_still_hears(edge: Edge) -> None:
    path = f"org:{edge.user.ns}:policy:follow"
    sites = [{"cloudlet": "berlin", "cluster": "c1"}]
    rule = {"app": "shop", "cloudlets": sites, "interval": 3_600, "deploy_client_count": 5}
    await edge.user.do(path, "create", spec={"auto_provision": rule})
    loop = companion(path, wire.LOOP)
    first = (await edge.client.get_workflow_handle(loop).describe()).run_id
    await flooded(edge, loop, wire.DEMAND, ["junk"] * SOME)
    await edge.client.get_workflow_handle(loop).signal(wire.DEMAND, {"cloudlet": "berlin", "clients": 3})
    memory: Memory = await edge.client.get_workflow_handle(loop).query("memory", result_type=Memory)
    assert memory.clients == {"berlin": 3}
    assert (await edge.client.get_workflow_handle(loop).describe()).run_id != first
    assert len(await edge.ignored(path)) < KEPT_PER_HOUR + 50
    await edge.user.do(path, "delete")


def test_of_a_flood_the_first_are_kept_within_each_hour_and_the_rest_is_counted() -> None:
    budget, kept = Budget(), 0
    for n in range(200):
        keep, budget = budget.spend(1_000_000 + n)
        kept += keep
    assert (kept, budget.more) == (KEPT_PER_HOUR, 150)
    assert budget.told().startswith("150 more")
    assert budget.spend(1_000_000 + HOUR)[0]
