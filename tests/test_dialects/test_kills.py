"""The gateway or the worker dies while a client waits for its lease: asked again, it is the same lease, once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.leases.names import CREATE_LEASE
from domain.model import Request
from tests.patience import PATIENCE
from tests.test_platform.conftest import opened
from tests.test_platform.forkserver import Child, ForkServer
from tests.test_platform.site import Site

LEASE = {
    "name": "mine",
    "start_date": "2199-01-01 00:00",
    "end_date": "2199-01-02 00:00",
    "reservations": [{"resource_type": "physical:host", "min": 1, "max": 1}],
}


@pytest.fixture
async def site(tmp_path: Path, postgres_url: str, forkserver: ForkServer) -> AsyncIterator[Site]:
    async with opened(tmp_path, postgres_url, forkserver) as found:
        yield found


@asynccontextmanager
async def gateway(site: Site, number: int) -> AsyncIterator[tuple[Child, str]]:
    """A gateway in a process of its own, on any free port; killed at the end."""
    log = site.home / f"gateway-{number}.log"
    log.touch()
    process = await site.forkserver.start(["gateway", "--port", "0"], {**os.environ, **site.environment}, log)
    try:
        async with asyncio.timeout(PATIENCE):
            while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
                assert await process.poll() is None, log.read_text()
                await asyncio.sleep(0.05)
        yield process, found[0]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ask(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=f"{url}/reservation/v1", timeout=PATIENCE) as http:
        answer = await http.post("/leases", json=LEASE)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()["lease"]
        return found


async def until_started(site: Site) -> None:
    """Until the workflow that creates the lease is there."""
    async with asyncio.timeout(PATIENCE):
        while not [run async for run in site.client.list_workflows(f"WorkflowType = '{CREATE_LEASE}'")]:
            await asyncio.sleep(0.05)


async def check_one_lease(site: Site, url: str, made: dict[str, Any]) -> None:
    async with httpx.AsyncClient(base_url=f"{url}/reservation/v1", timeout=PATIENCE) as http:
        (only,) = (await http.get("/leases")).json()["leases"]
        assert (only["id"], only["status"]) == (made["id"], "PENDING")
        (allocation,) = (await http.get("/os-hosts/allocations")).json()["allocations"]
    assert [each["lease_id"] for each in allocation["reservations"]] == [made["id"]], json.dumps(allocation)
    runs = [run async for run in site.client.list_workflows(f"WorkflowType = '{CREATE_LEASE}'")]
    assert {run.id for run in runs} == {f"project:default:lease:{made['id']}"}
    lines = await site.inventory.read_history(f"project:default:lease:{made['id']}")
    assert [(line.source, line.to) for line in lines] == [("None", "CREATING"), ("CREATING", "PENDING")]
    assert await site.inventory.list_locks() == []


async def add_host(site: Site) -> None:
    request = Request(path="pool:main:host:h1", action="add", spec={}, requested_by="tester")
    ticket = await site.asking.request_action(request)
    await site.asking.wait_for_outcome(request.path, ticket.run)


async def test_the_gateway_dies_while_a_client_waits(site: Site) -> None:
    async with site.worker() as worker, gateway(site, 1) as (process, url):
        await add_host(site)
        worker.process.send_signal(signal.SIGSTOP)  # nobody answers: the client waits
        waiting = asyncio.create_task(ask(url))
        await until_started(site)
        process.kill()
        with pytest.raises(httpx.HTTPError):
            await waiting
        worker.process.send_signal(signal.SIGCONT)
        async with gateway(site, 2) as (_, other):
            made = await ask(other)
            await check_one_lease(site, other, made)
            assert (await ask(other))["id"] == made["id"]


async def test_the_worker_dies_while_a_client_waits(site: Site) -> None:
    async with site.worker() as worker, gateway(site, 1) as (_, url):
        await add_host(site)
        worker.process.send_signal(signal.SIGSTOP)
        waiting = asyncio.create_task(ask(url))
        await until_started(site)
        worker.process.kill()
        async with site.worker():
            made = await waiting
            await check_one_lease(site, url, made)
            assert (await ask(url))["id"] == made["id"]
