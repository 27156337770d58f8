"""A server, its data and a worker process that can be killed: everything that a fault can hit."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from temporalio.client import Client

from domain import wire
from domain.faults import Fault, FaultScript
from domain.model import ObjectView, Outcome, Query, Request, Verification
from domain.wire import ACTIONS_QUEUE
from providers.simulated import SimulatedCloud, Vm
from starter.asking import Asking, Ticket
from starter.errors import NoWorker, Unanswered
from store.engine import Database
from workers import embedded
from workers.connection import connect
from workers.crash import TRACE
from workers.plugin import plugin
from workers.settings import Settings

PATIENCE = 60


@dataclass
class World:
    """Stories are told in namespaces of their own, so that one world serves many of them."""

    home: Path
    server: embedded.EmbeddedServer
    client: Client
    cloud: SimulatedCloud
    worker: asyncio.subprocess.Process | None = None
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def asking(self) -> Asking:
        return Asking(self.client)

    def ns(self) -> str:
        return f"w{next(self._numbers)}"

    async def ask(self, path: str, action: str, **more: Any) -> Ticket | None:
        """None: nobody could answer in time; the request stays."""
        try:
            return await self.asking.ask(Request(path=path, action=action, requested_by="chaos", **more))
        except Unanswered:
            return None

    async def do(self, path: str, action: str, **more: Any) -> Outcome:
        """An action from the request to its outcome, however long the worker is away in between."""
        ticket = await self.ask(path, action, **more)
        assert ticket is None or ticket.admission.refusal is None, ticket
        return await self.asking.outcome(path, ticket.run if ticket else None)

    async def see(self, path: str) -> ObjectView:
        """An object; while no worker is there, this waits for one."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                return await self.asking.read(wire.READ_OBJECT, Query(path=path), ObjectView)
            except (Unanswered, NoWorker):
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.2)

    async def fault(self, **fault: Any) -> None:
        await self.asking.read(wire.CLOUD_FAULTS, FaultScript(faults=[Fault(**fault)]), FaultScript)

    async def verify(self, prefix: str) -> Verification:
        return await self.asking.read(wire.VERIFY, Query(path=prefix), Verification, seconds=30)

    async def books(self, prefix: str) -> list[Vm]:
        return [vm for vm in await self.cloud.books() if vm.path.startswith(f"{prefix}:")]

    # The worker.

    @property
    def crash_file(self) -> Path:
        return self.home / "crash"

    def arm(self, point: str) -> None:
        """The worker dies when it next reaches this point."""
        self.crash_file.write_text(point)

    @asynccontextmanager
    async def traced(self) -> AsyncIterator[list[str]]:
        """The points that are reached meanwhile, in order, each once."""
        trace = self.crash_file.with_suffix(".trace")
        trace.unlink(missing_ok=True)
        self.arm(TRACE)
        found: list[str] = []
        yield found
        self.arm("")
        found += dict.fromkeys(trace.read_text().splitlines())

    async def start_worker(self, **settings: str) -> None:
        environment = os.environ | {
            "RATCHET_HOME": str(self.home),
            "RATCHET_CRASH_FILE": str(self.crash_file),
            "TEMPORAL_ADDRESS": self.server.address,
            "RATCHET_SIMULATED_LATENCY": "0.05",
            "RATCHET_LOG_LEVEL": "error",
            **settings,
        }
        self.worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "workers"), env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(PATIENCE):
            while not await self.asking.pollers(ACTIONS_QUEUE):
                await asyncio.sleep(0.02)

    async def worker_died(self) -> None:
        assert self.worker
        await self.worker.wait()

    async def kill_worker(self) -> None:
        if self.worker and self.worker.returncode is None:
            self.worker.kill()
            await self.worker.wait()

    async def restart_server(self) -> None:
        """kill -9, and back on the same files and the same port."""
        self.server.process.kill()
        await self.server.process.wait()
        _, port = self.server.address.split(":")
        self.server = await embedded.start(self.home, port=int(port))


@asynccontextmanager
async def world(home: Path) -> AsyncIterator[World]:
    """A new world, with a worker in it."""
    home.mkdir(parents=True, exist_ok=True)
    server = await embedded.start(home)
    clouds = Database(Settings(home=home).cloud())
    made = World(home, server, await connect(home, plugin()), SimulatedCloud("aws", clouds))
    try:
        await made.start_worker()
        yield made
    finally:
        await made.kill_worker()
        clouds.close()
        await made.server.stop()
