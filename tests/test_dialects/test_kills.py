"""The gateway or the worker dies while requests of every kind wait: asked again, the same object, one effect."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from domain.faults import Fault, FaultKind
from domain.statetable import LineEffect
from providers.edge.platform import CloudletPlatform
from tests.patience import PATIENCE
from tests.test_dialects.waiting import (
    CLOUDLET,
    EventReader,
    Gate,
    RememberingController,
    WaitingRequest,
    crm_remembering,
    events_followed,
    gate_open,
    prepare_requests,
)
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import Site, Worker, open_postgres_site
from workers.crm import platform_file, token_of_cloudlet
from workers.settings import WorkerSettings

FINAL = {  # how each ends
    "native create": "Running:1 (R:1/1)",
    "native suspend": "Suspended:1 (R:0/1)",
    "native cancel": "Failed",
    "native signal": "Running:1 (R:1/1)",
    "Blazar create": "PENDING",
    "Blazar update": "PENDING",
    "Blazar delete": "",
    "OpenvCloud create": "RUNNING",
    "OpenvCloud stop": "HALTED",
    "OpenvCloud reboot": "RUNNING",
    "OpenvCloud delete": "DESTROYED",
    "OpenvCloud attachDisk": "HALTED",
    "Tumblebug create": "Running:1 (R:1/1)",
    "Tumblebug suspend": "Suspended:1 (R:0/1)",
    "Tumblebug reboot": "Running:1 (R:1/1)",
    "Tumblebug scale-out": "Running:2 (R:2/2)",
    "Tumblebug delete": "",
    "CRM poll and answer": "Ready",
}
REPEATED = {  # lines that come more than once by right
    "OpenvCloud create": 2,  # two disks are added
    "Tumblebug scale-out": 2,  # its end, Creating -> Running, is that of the creation before
}
# Requests whose worker waits for a provider's answer. Cancels and signals are only accepted, the leases begin later, a
# cluster is the work of its CRM.
AT_A_PROVIDER = {  # with what the call is about
    **dict.fromkeys((name for name in FINAL if name.startswith("Tumblebug ")), "{path}:vm:*"),
    **dict.fromkeys(("native create", "native suspend"), "{path}:vm:*"),
    **dict.fromkeys((f"OpenvCloud {verb}" for verb in ("create", "stop", "reboot", "delete")), "{path}"),
    "OpenvCloud attachDisk": "account:umbrella:disk:d1",
}

MANY = 1_000  # a call that a busy worker gives up and repeats hangs as well


@pytest.fixture
async def site(tmp_path: Path, postgres_url: str, forkserver: ForkServer) -> AsyncIterator[Site]:
    async with open_postgres_site(tmp_path, postgres_url, forkserver) as found:
        yield found


@dataclass(frozen=True)
class Scene:
    """Who takes part."""

    site: Site
    gate: Gate
    worker: Worker
    http: httpx.AsyncClient


def ask_twice(request: WaitingRequest) -> WaitingRequest:
    """The same request, which is sent once more as soon as it is answered: the dialects know it."""

    async def ask(http: httpx.AsyncClient) -> Any:
        first = await request.ask(http)
        assert await request.ask(http) == first, f"{request.name}: asked once more, the same answer"
        return first

    return replace(request, ask=ask)


async def send_all(site: Site, http: httpx.AsyncClient, requests: list[WaitingRequest]) -> list[asyncio.Task[Any]]:
    """Sends all requests at once; returns when all of them wait."""
    before = [await request.arrived(site) for request in requests]
    tasks = [asyncio.create_task(request.ask(http)) for request in requests]
    async with asyncio.timeout(PATIENCE):
        for request, seen, task in zip(requests, before, tasks, strict=True):
            while await request.arrived(site) == seen:
                assert not task.done(), (request.name, task)
                await asyncio.sleep(0.05)
    return tasks


async def kill_gateway(scene: Scene, requests: list[WaitingRequest]) -> list[Any]:
    scene.worker.process.send_signal(signal.SIGSTOP)  # nobody answers: the clients wait
    waiting = await send_all(scene.site, scene.http, requests)
    await scene.gate.kill()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, httpx.HTTPError) for each in ended), ended
    scene.worker.process.send_signal(signal.SIGCONT)
    await scene.gate.start()
    return await asyncio.gather(*(request.ask(scene.http) for request in requests))


async def kill_worker(scene: Scene, requests: list[WaitingRequest]) -> list[Any]:
    scene.worker.process.send_signal(signal.SIGSTOP)
    waiting = await send_all(scene.site, scene.http, requests)
    await scene.worker.kill()
    await (await scene.site.start()).until_said('"serving"')
    return await asyncio.gather(*waiting)


async def send_until_at_work(scene: Scene, requests: list[WaitingRequest]) -> list[asyncio.Task[Any]]:
    """Sends all requests; returns when each of those that need a provider has a call there that does not return."""
    cloud = scene.site.cloud
    for request in requests:
        if about := AT_A_PROVIDER.get(request.name):
            wanted = about.format(path=request.path)
            await cloud.add_fault(Fault(kind=FaultKind.HANG, vm=wanted, times=MANY, seconds=10 * PATIENCE))
    tasks = [asyncio.create_task(request.ask(scene.http)) for request in requests]
    async with asyncio.timeout(PATIENCE):
        while any(fault.times == MANY for fault in await cloud.list_faults()):
            await asyncio.sleep(0.1)
    at_work = [task for request, task in zip(requests, tasks, strict=True) if request.name in AT_A_PROVIDER]
    assert not any(task.done() for task in at_work), at_work
    return tasks


async def kill_worker_at_work(scene: Scene, requests: list[WaitingRequest]) -> list[Any]:
    waiting = await send_until_at_work(scene, requests)
    await scene.worker.kill()
    await scene.site.cloud.clear_faults()
    await (await scene.site.start()).until_said('"serving"')
    return await asyncio.gather(*waiting)


async def kill_both_at_work(scene: Scene, requests: list[WaitingRequest]) -> list[Any]:
    waiting = await send_until_at_work(scene, requests)
    await scene.worker.kill()
    await scene.gate.kill()
    await scene.site.cloud.clear_faults()
    await asyncio.gather(*waiting, return_exceptions=True)
    await (await scene.site.start()).until_said('"serving"')
    await scene.gate.start()
    return await asyncio.gather(*(request.ask(scene.http) for request in requests))


@pytest.mark.parametrize("kill", [kill_gateway, kill_worker, kill_worker_at_work, kill_both_at_work])
@pytest.mark.timeout(2 * PATIENCE)
async def test_every_kind_of_waiting_request_outlives_a_kill(site: Site, kill: Any) -> None:
    token = token_of_cloudlet(WorkerSettings(home=site.home), CLOUDLET)
    async with AsyncExitStack() as whole:
        worker = await whole.enter_async_context(site.worker())
        gate = await whole.enter_async_context(gate_open(site))
        crm = await whole.enter_async_context(crm_remembering(site, gate.url, token))
        events = await whole.enter_async_context(events_followed(gate.url))
        http = await whole.enter_async_context(httpx.AsyncClient(base_url=gate.url, timeout=PATIENCE))
        requests = [ask_twice(each) for each in await prepare_requests(site, http, token.create_token())]
        made = await kill(Scene(site, gate, worker, http), requests)
        requests[:] = [_with_path(request, first) for request, first in zip(requests, made, strict=True)]
        async with asyncio.timeout(PATIENCE):  # an order that is only accepted, such as a cancel, takes a while
            while await site.inventory.list_locks():
                await asyncio.sleep(0.05)
        wrong = [await find_wrong_effect(site, request) for request in requests]
        assert not any(wrong), [each for each in wrong if each]
        await check_clouds(site, http, crm)
        await check_events(site, events, gate.started)


def _with_path(request: WaitingRequest, answer: Any) -> WaitingRequest:
    return replace(request, path=request.path or f"project:default:lease:{answer}")


async def find_wrong_effect(site: Site, request: WaitingRequest) -> object:
    """Says what is wrong if the object is not as the request wants it, or if one of its changes happened twice."""
    found = await site.inventory.list_objects(request.path.split(":")[-2], request.path)
    lines = await site.inventory.read_history(request.path, 1_000)
    changes = (line for line in lines if line.source != line.to and line.effect is LineEffect.APPLIED)
    moves = Counter((line.source, line.to) for line in changes)
    status, times = found[0].status if found else "", max(moves.values())
    is_right = status == FINAL[request.name] and times == REPEATED.get(request.name, 1)
    return None if is_right else (request.name, status, moves)


async def check_clouds(site: Site, http: httpx.AsyncClient, crm: RememberingController) -> None:
    vms = Counter(vm.path for vm in await site.books())
    assert set(vms.values()) == {1}, vms
    allocations = (await http.get("/reservation/v1/os-hosts/allocations")).json()["allocations"]
    booked = Counter(each["lease_id"] for host in allocations for each in host["reservations"])
    assert sorted(booked.values()) == [1, 1], "two leases are left, with a host each"
    disks = (await http.get("/v1/objects", params={"kind": "disk"})).json()["objects"]
    assert sorted(disk["path"].rsplit(":", 1)[-1] for disk in disks if "data" in disk["path"]) == [
        "new-data1",
        "new-data2",
    ]
    for message in crm.posted:  # as after an answer that got lost
        answer = await http.post(message["route"], json=message["json"])
        assert answer.status_code in (202, 409), answer.text
    platform = CloudletPlatform(platform_file(site.home, CLOUDLET))
    try:
        assert sorted(platform.list_instances()) == [f"{CLOUDLET}:cluster:c1"]
    finally:
        platform.close()
    assert (await http.get(f"/v1/objects/{CLOUDLET}:cluster:c1")).json()["status"] == "Ready"


async def check_events(site: Site, events: EventReader, connections: int) -> None:
    """The stream has every line of the history, none of them twice.

    More lines may be written at any time (by a sweep, by a link). They come after all that were streamed before them:
    the stream waits for older transactions.
    """
    statement = sa.text("SELECT seq FROM history ORDER BY xid, seq")

    async def kept() -> list[int]:
        return list(
            await site.database.run_transaction(lambda connection: connection.execute(statement).scalars().all())
        )

    written = set(await kept())
    async with asyncio.timeout(PATIENCE):
        while not written <= {line["seq"] for line in events.lines}:
            await asyncio.sleep(0.05)
    streamed = [line["seq"] for line in events.lines]
    assert streamed == (await kept())[: len(streamed)]
    assert events.connections == connections
