"""A Temporal server, a store, and worker processes that come and go."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client

from client.actions import ActionClient, Ticket
from domain.faults import Fault, FaultKind
from domain.model import Outcome, Request
from providers.simulated import SimulatedCloud, SimulatedVm
from store.engine import Database
from store.inventory import SqlInventory
from tests.patience import PATIENCE
from tests.test_platform.forkserver import Child, ForkServer
from tests.user import spec
from workers import embedded
from workers.families import FAMILIES, merge_hooks

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
                await asyncio.sleep(0.02)

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

    @property
    def asking(self) -> ActionClient:
        return ActionClient(self.client)

    @property
    def inventory(self) -> SqlInventory:
        return SqlInventory(self.database, merge_hooks(FAMILIES))

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
                await asyncio.sleep(0.02)

    async def start(self, *words: str, cwd: Path | None = None, **more: str) -> Worker:
        """A worker process; `more` are variables of its own. With a folder: of the program that is there."""
        log = self.home / f"worker-{len(self.workers)}.log"
        command, variables = ["worker", *words], os.environ | self.environment | more
        log.touch()
        process: asyncio.subprocess.Process | Child
        if cwd:
            with log.open("wb") as file:
                program = (sys.executable, "-m", "starter")
                process = await asyncio.create_subprocess_exec(
                    *program, *command, cwd=cwd, env=variables, stdout=file, stderr=file
                )
        else:
            process = await self.forkserver.start(command, variables, log)
        self.workers.append(Worker(process, log))
        return self.workers[-1]

    @asynccontextmanager
    async def worker(self, *words: str, cwd: Path | None = None, **more: str) -> AsyncIterator[Worker]:
        """One that serves; it is killed at the end, if it still runs."""
        started = await self.start(*words, cwd=cwd, **more)
        await started.until_said('"serving"')
        try:
            yield started
        finally:
            await self.kill(started)

    async def starter(self, *words: str, **more: str) -> tuple[int, str]:
        """One command in a process of its own: its code, and all that it said."""
        log = self.home / "command.log"
        child = await self.forkserver.start(list(words), os.environ | self.environment | more, log)
        return await child.wait(), log.read_text()

    async def kill(self, worker: Worker) -> None:
        if worker.process.returncode is None:
            worker.process.kill()
        await worker.process.wait()
