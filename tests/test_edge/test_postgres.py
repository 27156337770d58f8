"""The edge on PostgreSQL: the same rows and refusals, and connections during running actions."""

from __future__ import annotations

import asyncio

import pytest

from domain.model import ActionResult
from tests.test_edge.kit import Edge, fault

pytestmark = pytest.mark.stores("postgres")


async def test_a_cloudlet_lives_its_life_on_postgresql(edge: Edge) -> None:
    path = await edge.up()
    clusters = [edge.at("berlin", f"c{n}") for n in range(10)]
    done = await asyncio.gather(*(edge.user.do(cluster, "create", spec={}) for cluster in clusters))
    assert {outcome.result for outcome in done} == {ActionResult.SUCCEEDED}
    edge.set_faults(fault("silent"))
    tickets = [await edge.begun(cluster, "update", spec={"nodes": 2}) for cluster in clusters]
    edge.platform().remove_instance(clusters[0])
    await edge.stop_crm()
    await edge.start_crm()
    edge.set_faults()
    ends = [await edge.end(ticket) for ticket in tickets]
    assert [end.result for end in ends] == [ActionResult.FAILED, *[ActionResult.SUCCEEDED] * 9]
    assert {thing["nodes"] for thing in list(edge.platform().list_instances().values())[1:]} == {2}
    await edge.until(path, "Ready")
    assert (await edge.user.do(clusters[1], "delete")).status == "None"
    assert (await edge.user.do(clusters[0], "recreate")).status == "Ready"  # the one that was missing
    await edge.at_rest()
