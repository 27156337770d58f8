"""A Temporal server, a store, and worker processes that come and go."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client

from activities.access import Authorizer
from client.actions import ActionClient, Ticket
from client.connection import connect_temporal
from domain.faults import Fault, FaultKind
from domain.model import Outcome, Request
from domain.wire import ACTIONS_QUEUE
from providers.simulated import SimulatedCloud, SimulatedVm
from store.engine import Database
from store.inventory import SqlInventory
from tests.patience import PATIENCE, PATIENT
from tests.stack import SHORT_POLLS, fresh_database, is_locked
from tests.test_platform.forkserver import STARTER, Child, ForkServer
from tests.user import spec
from workers import embedded
from workers.families import FAMILIES, merge_hooks
from workers.plugin import temporal_plugin
from workers.settings import WorkerSettings

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Worker:
    """A worker process, and what it has said so far."""

    process: asyncio.subprocess.Process | Child
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    async def until_said(self, words: str) -> None:
        """Fails at once if it ends without a word of it."""
        async with asyncio.timeout(PATIENCE):
            while words not in self.said():
                code = await self._ended()
                assert code is None or words in self.said(), f"ended with code {code}: {self.said()}"
                await asyncio.sleep(0.1)

    async def kill(self) -> None:
        """End it as `kill -9` does, if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def _ended(self) -> int | None:
        return await self.process.poll() if isinstance(self.process, Child) else self.process.returncode


@dataclass
class Site:
    """The databases survive everything that happens to the workers."""

    home: Path
    server: embedded.EmbeddedServer
    client: Client
    database: Database
    clouds: Database
    forkserver: ForkServer
    environment: dict[str, str] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    program: str = STARTER  # what is `starter` here

    @property
    def asking(self) -> ActionClient:
        """A client that waits as long as tests do: a busy machine is no failure."""
        asking = ActionClient(self.client)
        asking.admission_seconds = PATIENCE
        return asking

    @property
    def inventory(self) -> SqlInventory:
        return SqlInventory(self.database, merge_hooks(FAMILIES), Authorizer())

    @property
    def cloud(self) -> SimulatedCloud:
        return SimulatedCloud("aws", self.clouds)

    async def books(self) -> list[SimulatedVm]:
        return await self.cloud.list_all_vms()

    def request(self, path: str, action: str, spec: dict[str, Any] | None = None) -> Request:
        return Request(path=path, action=action, spec=spec, requested_by="tester")

    async def ask(self, path: str, action: str, size: int = 2) -> Ticket:
        wanted = spec(size, ["aws"]) if action == "create" else None
        return await self.asking.request_action(Request(path=path, action=action, spec=wanted, requested_by="tester"))

    async def do(self, path: str, action: str, size: int = 2) -> Outcome:
        ticket = await self.ask(path, action, size)
        assert not ticket.admission.refusal, ticket.admission.refusal
        return await self.asking.wait_for_outcome(path, ticket.run)

    async def hang(self, verb: str, seconds: float, vm: str = "aws0-1") -> None:
        """The next such call for this VM takes its time."""
        await self.cloud.add_fault(Fault(kind=FaultKind.HANG, vm=vm, verb=verb, times=1, seconds=seconds))

    async def until_hanging(self) -> None:
        """Until the call that hangs has been made."""
        async with asyncio.timeout(PATIENCE):
            while any(fault.kind is FaultKind.HANG for fault in await self.cloud.list_faults()):
                await asyncio.sleep(0.1)

    async def until_half_done(self, during: str) -> None:
        """Until some VMs have landed and some have not."""
        async with asyncio.timeout(PATIENCE):
            while True:
                statuses = {vm.status for vm in await self.inventory.list_objects("vm")}
                if during in statuses and len(statuses) > 1:
                    return
                await asyncio.sleep(0.05)

    async def restart_server(self) -> None:
        """Kill the server with -9, and start it again where it was."""
        self.server.process.kill()
        await self.server.process.wait()
        _, port = self.server.address.split(":")
        self.server = await embedded.start_server(self.home, port=int(port), tuning=[SHORT_POLLS])

    async def freeze(self, worker: Worker) -> None:
        """Stop a worker between two transactions: on SQLite, one stopped in the middle keeps all others out."""
        pid = worker.process.pid
        async with asyncio.timeout(PATIENCE):
            while True:
                os.kill(pid, signal.SIGSTOP)
                while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                    await asyncio.sleep(0.01)
                if not await asyncio.to_thread(is_locked, self.home):
                    return
                os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(0.05)

    async def start(self, *words: str, cwd: Path | None = None, dies_at: str = "", **more: str) -> Worker:
        """A worker process; `more` are variables of its own. With a folder: of the program that is there.

        `dies_at`: a crash point (tests/chaos/crash.py) at which it kills itself.
        """
        log = self.home / f"worker-{len(self.workers)}.log"
        command, variables = ["worker", *words], os.environ | self.environment | more
        if dies_at:
            crash_file, clock_file = self.home / "crash", self.home / "clock"
            crash_file.write_text(dies_at)
            variables |= {"CRASH_FILE": str(crash_file), "CLOCK_FILE": str(clock_file)}
        log.touch()
        process: asyncio.subprocess.Process | Child
        if cwd:
            with log.open("wb") as file:
                program = (sys.executable, "-m", "starter")
                process = await asyncio.create_subprocess_exec(
                    *program, *command, cwd=cwd, env=variables, stdout=file, stderr=file
                )
        else:
            program_name = "tests.chaos.shifted" if dies_at else self.program
            process = await self.forkserver.start(command, variables, log, program_name)
        self.workers.append(Worker(process, log))
        return self.workers[-1]

    @asynccontextmanager
    async def worker(
        self, *words: str, cwd: Path | None = None, dies_at: str = "", **more: str
    ) -> AsyncIterator[Worker]:
        """One that serves; it is killed at the end, if it still runs."""
        started = await self.start(*words, cwd=cwd, dies_at=dies_at, **more)
        await started.until_said('"serving"')
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self.asking.count_pollers(ACTIONS_QUEUE):  # Temporal lists it after a while
                    await asyncio.sleep(0.05)
            yield started
        finally:
            await started.kill()

    async def starter(self, *words: str, **more: str) -> tuple[int, str]:
        """One command in a process of its own: its code, and all that it said."""
        log = self.home / "command.log"
        child = await self.forkserver.start(list(words), os.environ | self.environment | more, log, self.program)
        return await child.wait(), log.read_text()


@asynccontextmanager
async def open_site(home: Path, forkserver: ForkServer, url: str = "", **variables: str) -> AsyncIterator[Site]:
    """A site that ends, with all its workers, when the block does. Without a URL its databases are files in `home`."""
    server = await embedded.start_server(home, tuning=[SHORT_POLLS])
    settings = WorkerSettings(home=home)
    urls = {"RATCHET_STORE_URL": url, "RATCHET_CLOUD_URL": url} if url else {}
    site = Site(
        home,
        server,
        await connect_temporal(home, temporal_plugin(), retry_config=PATIENT),
        Database(url or settings.store_database_url()),
        Database(url or settings.cloud_database_url()),
        forkserver,
        {"RATCHET_HOME": str(home), "TEMPORAL_ADDRESS": server.address, **urls, **variables},
    )
    try:
        yield site
    finally:
        for worker in site.workers:
            await worker.kill()
        site.database.close()
        site.clouds.close()
        await site.server.stop_server()  # not the first one: a test may have killed that


def open_postgres_site(home: Path, postgres_url: str, forkserver: ForkServer) -> AbstractAsyncContextManager[Site]:
    """A site on a new database of the test's PostgreSQL server, whose clouds answer at once."""
    quick = {"RATCHET_SIMULATED_LATENCY": "0", "RATCHET_DRAIN": "1"}
    return open_site(home, forkserver, fresh_database(postgres_url), **quick)
