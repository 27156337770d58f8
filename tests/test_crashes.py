"""Workers and servers killed with -9 during an action: it continues by itself, and nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import Client

from client.actions import ActionClient
from client.connection import connect_temporal
from domain.faults import Fault, FaultKind
from domain.model import ActionResult, Request
from domain.wire import ACTIONS_QUEUE
from providers.simulated import SimulatedCloud
from store.engine import Database
from store.inventory import SqlInventory
from tests.patience import PATIENCE
from tests.stack import is_locked
from tests.test_platform.forkserver import Child, ForkServer
from tests.user import spec
from workers import embedded
from workers.families import FAMILIES, merge_hooks
from workers.plugin import temporal_plugin
from workers.settings import WorkerSettings

MCI = "ns:default:mci:web"
LATENCY = 0.4


@dataclass
class Site:
    """A server with its data, and the databases that survive every crash."""

    home: Path
    server: embedded.EmbeddedServer
    client: Client
    inventory: SqlInventory
    cloud: SimulatedCloud
    forkserver: ForkServer

    async def do(self, action: str) -> ActionResult:
        client = ActionClient(self.client)
        ticket = await client.request_action(
            Request(path=MCI, action=action, spec=spec(4, ["aws"]) if action == "create" else None)
        )
        return (await client.wait_for_outcome(MCI, ticket.run)).result

    async def begin(self, action: str, seconds: float = 60) -> asyncio.Task[ActionResult]:
        """An action of which one VM takes its time, so that there is a middle to be killed in, on a busy machine too.

        `seconds`: how long it takes if nobody who waits for it is killed.
        """
        await self.cloud.add_fault(Fault(kind=FaultKind.HANG, vm="aws0-4", verb=action, times=1, seconds=seconds))
        return asyncio.create_task(self.do(action))

    async def until_half_done(self, during: str) -> None:
        """Until some VMs have landed and some have not."""
        async with asyncio.timeout(PATIENCE):
            while True:
                statuses = [vm.status for vm in (await self.inventory.list_objects("vm"))]
                if during in statuses and set(statuses) != {during}:
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
async def site(tmp_path: Path, forkserver: ForkServer) -> AsyncIterator[Site]:
    server = await embedded.start_server(tmp_path)
    settings = WorkerSettings(home=tmp_path)
    database, clouds = Database(settings.store_database_url()), Database(settings.cloud_database_url())
    client = await connect_temporal(tmp_path, temporal_plugin())
    inventory, cloud = SqlInventory(database, merge_hooks(FAMILIES)), SimulatedCloud("aws", clouds)
    found = Site(tmp_path, server, client, inventory, cloud, forkserver)
    yield found
    database.close()
    clouds.close()
    await found.server.stop_server()  # not the first one: a test may have killed that


@asynccontextmanager
async def worker(site: Site, dies_at: str = "") -> AsyncIterator[Child]:
    """A real worker process; killed with -9 at the end, if not before: when it reaches the point `dies_at`."""
    crash_file = site.home / "crash"
    crash_file.write_text(dies_at)
    environment = os.environ | {
        "CRASH_FILE": str(crash_file),
        "CLOCK_FILE": str(site.home / "clock"),
        "RATCHET_HOME": str(site.home),
        "TEMPORAL_ADDRESS": site.server.address,
        "RATCHET_SIMULATED_LATENCY": str(LATENCY),
        "RATCHET_SIMULATED_JITTER": "1",
        "RATCHET_LOG_LEVEL": "error",
    }
    program = "tests.chaos.shifted" if dies_at else "workers.__main__"
    process = await site.forkserver.start([], environment, site.home / "worker.log", program)
    client = ActionClient(site.client)
    async with asyncio.timeout(PATIENCE):  # a busy machine takes its time to start a process
        while not await client.count_pollers(ACTIONS_QUEUE):
            assert await process.poll() is None, (site.home / "worker.log").read_text()
            await asyncio.sleep(0.02)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def freeze(site: Site, process: Child) -> None:
    """Stop a worker between two transactions: on SQLite, one stopped in the middle keeps all others from writing."""
    async with asyncio.timeout(PATIENCE):
        while True:
            process.send_signal(signal.SIGSTOP)
            while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                await asyncio.sleep(0.01)
            if not await asyncio.to_thread(is_locked, site.home):
                return
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("before", "action", "during", "effects"),
    [
        ([], "create", "Creating", 1),
        (["create"], "reboot", "Rebooting", 2),
        (["create"], "terminate", "Terminating", 2),
    ],
)
async def test_a_worker_killed_in_the_middle_of_an_action_is_replaced_and_nothing_is_done_twice(
    site: Site, before: list[str], action: str, during: str, effects: int
) -> None:
    async with worker(site) as first:
        for earlier in before:
            await site.do(earlier)
        running = await site.begin(action)
        await site.until_half_done(during)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with worker(site):
        async with asyncio.timeout(PATIENCE):
            assert await running is ActionResult.SUCCEEDED
    assert {vm.effects for vm in await site.cloud.list_all_vms()} == {effects}
    assert len(await site.cloud.list_all_vms()) == 4
    assert await site.inventory.list_locks() == []


async def test_a_server_killed_in_the_middle_of_an_action_comes_back_and_no_call_is_repeated(site: Site) -> None:
    async with worker(site):
        assert await site.do("create") is ActionResult.SUCCEEDED
        running = await site.begin("suspend", seconds=8)
        await site.until_half_done("Suspending")
        site.server.process.kill()
        await site.server.process.wait()
        _, port = site.server.address.split(":")
        site.server = await embedded.start_server(site.home, port=int(port))
        async with asyncio.timeout(PATIENCE):
            assert await running is ActionResult.SUCCEEDED
    assert {(vm.state, vm.calls, vm.effects) for vm in await site.cloud.list_all_vms()} == {("stopped", 2, 2)}
    assert await site.inventory.list_locks() == []


async def test_a_worker_told_to_stop_hands_its_action_over(site: Site) -> None:
    async with worker(site) as first:
        await site.do("create")
        running = await site.begin("reboot", seconds=8)
        await site.until_half_done("Rebooting")
        first.send_signal(signal.SIGTERM)
        assert await first.wait() == 0
    async with worker(site), asyncio.timeout(PATIENCE):
        assert await running is ActionResult.SUCCEEDED
    assert {vm.effects for vm in await site.cloud.list_all_vms()} == {2}


async def test_a_worker_frozen_in_an_order_changes_nothing_when_later_actions_are_done(site: Site) -> None:
    """It is on the wire with one VM, and has not begun with others: neither may touch what a later action left."""
    async with worker(site) as frozen:
        await site.do("create")
        running = await site.begin("suspend", seconds=8)
        await site.until_half_done("Suspending")
        await freeze(site, frozen)
        async with worker(site), asyncio.timeout(PATIENCE):
            assert await running == "succeeded"
            assert await site.do("resume") == "succeeded"
            before = [(vm.path, vm.state, vm.effects) for vm in await site.cloud.list_all_vms()]
            frozen.send_signal(signal.SIGCONT)
            frozen.send_signal(signal.SIGTERM)  # it ends when all of its activities have
            await asyncio.wait_for(frozen.wait(), PATIENCE)
            assert [(vm.path, vm.state, vm.effects) for vm in await site.cloud.list_all_vms()] == before
            assert {vm.state for vm in await site.cloud.list_all_vms()} == {"running"}
