"""The edge on PostgreSQL: the same rows, the same refusals, and connections beside running actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from domain.model import Result
from starter.asking import Asking
from tests.test_edge.kit import Edge, edge_of, fault
from tests.user import User
from workers import embedded
from workers.connection import connect
from workers.plugin import plugin
from workers.service import Service
from workers.settings import Settings


@pytest.fixture
async def edge(tmp_path: Path, postgres_url: str) -> AsyncIterator[Edge]:
    """A stack on PostgreSQL, with a Temporal server of its own: queues have one name everywhere."""
    server = await embedded.start(tmp_path)
    client = await connect(tmp_path, plugin(sandbox=True))
    service = Service(client, Settings(home=tmp_path, store_url=postgres_url, cloud_url=postgres_url))
    service.prepare()
    async with service.serve(), edge_of(User(Asking(client), service, "edgepg"), tmp_path, client) as found:
        yield found
    await service.close()
    await server.stop()


async def test_a_cloudlet_lives_its_life_on_postgresql(edge: Edge) -> None:
    path = await edge.up()
    clusters = [edge.at("berlin", f"c{n}") for n in range(10)]
    done = await asyncio.gather(*(edge.user.do(cluster, "create", spec={}) for cluster in clusters))
    assert {outcome.result for outcome in done} == {Result.SUCCEEDED}
    edge.set_faults(fault("silent"))
    tickets = [await edge.begun(cluster, "update", spec={"nodes": 2}) for cluster in clusters]
    edge.platform().remove(clusters[0])
    await edge.stop_crm()
    await edge.start_crm()
    edge.set_faults()
    ends = [await edge.end(ticket) for ticket in tickets]
    assert [end.result for end in ends] == [Result.FAILED, *[Result.SUCCEEDED] * 9]
    assert {thing["nodes"] for thing in list(edge.platform().things().values())[1:]} == {2}
    await edge.until(path, "Ready")
    assert (await edge.user.do(clusters[1], "delete")).status == "None"
    await edge.at_rest()
