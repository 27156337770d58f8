"""The controller's worker or the CRM killed with -9 in every state: the action still ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from client.actions import ActionClient
from client.connection import connect_temporal
from domain.model import ActionResult
from domain.wire import ACTIONS_QUEUE
from tests.patience import PATIENCE
from tests.test_edge.kit import QUICK, Edge, edge_of, fault, words
from tests.test_edge.processes import CrmProcess, crm_process
from tests.user import User
from workers import embedded
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings


@asynccontextmanager
async def worker(home: Path, address: str, client: ActionClient) -> AsyncIterator[asyncio.subprocess.Process]:
    """A real worker process; killed with -9 at the end, if not before."""
    environment = {**os.environ, "RATCHET_HOME": str(home), "TEMPORAL_ADDRESS": address, "RATCHET_LOG_LEVEL": "error"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "workers", env=environment)
    async with asyncio.timeout(PATIENCE):
        while not await client.count_pollers(ACTIONS_QUEUE):
            await asyncio.sleep(0.05)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


@pytest.fixture
async def lonely(tmp_path: Path) -> AsyncIterator[tuple[Edge, str]]:
    """A server and a CRM, but no worker in this process."""
    server = await embedded.start_server(tmp_path)
    client = await connect_temporal(tmp_path, temporal_plugin())
    service = WorkerService(client, WorkerSettings(home=tmp_path))
    service.prepare_databases()
    async with edge_of(User(ActionClient(client), service, "acme"), tmp_path, client) as edge:
        yield edge, server.address
    await service.close()
    await server.stop_server()


# Where an object is when the worker dies: the action, what the CRM has said, the status, its last word, the end.
STATES = {
    "creq": ("create", [], "CreateRequested", "Ready", "Ready"),
    "creating": ("create", ["Creating"], "Creating", "Ready", "Ready"),
    "cerr": ("create", ["CreateError"], "CreateError", "NotPresent", "None"),
    "ureq": ("update", [], "UpdateRequested", "Ready", "Ready"),
    "updating": ("update", ["Updating"], "Updating", "Ready", "Ready"),
    "uerr": ("update", ["UpdateError"], "UpdateError", "Ready", "Ready"),
    "dreq": ("delete", [], "DeleteRequested", "Deleted", "None"),
    "deleting": ("delete", ["Deleting"], "Deleting", "NotPresent", "None"),
    "derr": ("delete", ["DeleteError"], "DeleteError", "Ready", "Ready"),
}


async def test_a_worker_killed_in_every_state_is_replaced_and_every_action_ends(lonely: tuple[Edge, str]) -> None:
    edge, address = lonely
    client = edge.user.asking
    async with worker(edge.home, address, client) as first:
        await edge.up(cleanup=60)
        for name, (action, *_) in STATES.items():
            if action != "create":
                await edge.user.do(edge.at("berlin", name), "create", spec={})
        edge.set_faults(fault("silent"))
        tickets = {}
        for name, (action, said, status, _, _) in STATES.items():
            path = edge.at("berlin", name)
            tickets[name] = await edge.begun(path, action, spec={"nodes": 2} if action == "update" else None)
            for state in said:
                await edge.say(path, state, errors=["as it happens"] if "Error" in state else [])
            await edge.until(path, status)
        init = await edge.begun(edge.at("munich"), "create", spec={"patience": QUICK})
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with worker(edge.home, address, client):
        await edge.start_crm("munich")
        for name, (_, _, _, last, end) in STATES.items():
            await edge.say(edge.at("berlin", name), last)
            outcome = await edge.end(tickets[name])
            assert (name, outcome.status) == (name, end)
            assert outcome.result is (ActionResult.FAILED if name.endswith("err") else ActionResult.SUCCEEDED)
            if name.endswith("err"):
                assert outcome.message == "as it happens"
        assert (await edge.end(init)).status == "Ready"
        await edge.at_rest()


async def test_a_crm_killed_in_every_state_is_asked_again_and_does_nothing_twice(
    edge: Edge, home: Path, temporal_address: str
) -> None:
    path = edge.at("berlin")
    actions = {"silent": "Requested", "slow": ""}  # before it said anything, and at work
    async with crm_process(home, temporal_address, path) as crm:
        await edge.user.do(path, "create", spec={"patience": QUICK})
        names = {f"{kind}-{action}": (kind, action) for kind in actions for action in ("create", "update", "delete")}
        for name, (_, action) in names.items():
            if action != "create":
                await edge.user.do(edge.at("berlin", name), "create", spec={})
        crm.platform.set_faults(
            [fault(kind, action, f"*:{name}", seconds=60, times=1) for name, (kind, action) in names.items()]
        )
        tickets = {}
        for name, (_, action) in names.items():
            spec = {"nodes": 3} if action == "update" else None
            tickets[name] = await edge.begun(edge.at("berlin", name), action, spec=spec)
        for name, (kind, action) in names.items():
            word = {"create": "Creating", "update": "Updating", "delete": "Deleting"}[action]
            await edge.until(edge.at("berlin", name), f"{action.capitalize()}Requested" if kind == "silent" else word)
        await crm.kill()
        async with crm_process(home, temporal_address, path):
            for ticket in tickets.values():
                assert (await edge.end(ticket)).result is ActionResult.SUCCEEDED
        for name, (_, action) in names.items():
            done = crm.platform.list_applied_verbs(edge.at("berlin", name))
            assert done == (["create"] if action == "create" else ["create", action]), name
    await edge.at_rest()


async def test_a_crm_that_crashes_before_or_after_its_work_is_found_out_by_what_it_has(
    edge: Edge, home: Path, temporal_address: str
) -> None:
    path = edge.at("berlin")
    names = {
        f"{kind}-{action}": (kind, action)
        for kind in ("crash-before", "crash-after")
        for action in ("create", "update", "delete")
    }
    async with kept_alive(home, temporal_address, path) as crm:
        await edge.user.do(path, "create", spec={"patience": QUICK})
        for name, (_, action) in names.items():
            if action != "create":
                await edge.user.do(edge.at("berlin", name), "create", spec={})
        crm.platform.set_faults([fault(kind, action, f"*:{name}", times=1) for name, (kind, action) in names.items()])
        tickets = []
        for name, (_, action) in names.items():  # it crashes meanwhile
            spec = {"nodes": 3} if action == "update" else None
            tickets.append(await edge.begun_when_ready(edge.at("berlin", name), action, path, spec=spec))
        for ticket in tickets:
            assert (await edge.end(ticket)).result is ActionResult.SUCCEEDED
        for name, (_, action) in names.items():
            done = crm.platform.list_applied_verbs(edge.at("berlin", name))
            assert done == (["create"] if action == "create" else ["create", action]), name
            there = words(await edge.walk(edge.at("berlin", name)))
            assert there[-1] == ("None" if action == "delete" else "Ready")
    await edge.at_rest()


@asynccontextmanager
async def kept_alive(home: Path, address: str, cloudlet: str) -> AsyncIterator[CrmProcess]:
    """A CRM that is started again whenever it ends, as a service manager would."""
    stack = [crm_process(home, address, cloudlet)]
    first = await stack[0].__aenter__()

    async def watch() -> None:
        current = first
        while True:
            await current.process.wait()
            stack.append(crm_process(home, address, cloudlet))
            current = await stack[-1].__aenter__()

    watching = asyncio.create_task(watch())
    try:
        yield first
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        for each in reversed(stack):
            await each.__aexit__(None, None, None)
