"""A server with its data, and a worker process that can be killed."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel
from temporalio.client import Client

from client.actions import ActionClient, Ticket
from client.connection import connect_temporal
from client.errors import NoWorker, Unanswered
from domain import wire
from domain.errors import Refused
from domain.faults import Fault
from domain.invariants import InvariantViolation, VerificationReport
from domain.model import HistoryLine, HistoryView, ObjectView, Outcome, ReadQuery, Request
from domain.wire import ACTIONS_QUEUE
from providers.machines import SimulatedHypervisor
from providers.simulated import SimulatedCloud, SimulatedVm
from store.engine import Database
from tests.chaos.crash import TRACE
from tests.chaos.crms import Crms
from tests.patience import PATIENCE, PATIENT, answered, ended
from tests.stack import PROCESS_BACKEND, SHORT_POLLS
from tests.test_platform.forkserver import Child, ForkServer
from workers import embedded
from workers.plugin import temporal_plugin
from workers.settings import WorkerSettings

T = TypeVar("T", bound=BaseModel)

# A run hears fewer signals than Temporal lets it by itself: a story of one that hears no more would take minutes.
TUNING = ("history.maximumSignalsPerExecution=300", SHORT_POLLS)


@dataclass
class World:
    """Stories run in namespaces of their own, so that one world serves many."""

    home: Path
    server: embedded.EmbeddedServer
    client: Client
    cloud: SimulatedCloud
    cloud_database: Database  # of all simulated providers
    hypervisor: SimulatedHypervisor
    crms: Crms
    forkserver: ForkServer
    settings: dict[str, str] = field(default_factory=dict)
    worker: Child | None = None
    _death: asyncio.Task[int] | None = None
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _script: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def asking(self) -> ActionClient:
        return ActionClient(self.client)

    def ns(self) -> str:
        return f"w{next(self._numbers)}"

    async def ask(self, path: str, action: str, **more: Any) -> Ticket:
        """Send a request until it is answered; with the same ID, a repeated request is the same request."""
        request = Request(path=path, action=action, requested_by="chaos", request_id=uuid4().hex, **more)
        return await answered(self.asking, request)

    async def end(self, ticket: Ticket) -> Outcome:
        """The outcome of a request, however long the worker is down in between."""
        return await ended(self.asking, ticket)

    async def do(self, path: str, action: str, **more: Any) -> Outcome:
        """An action from the request to its outcome."""
        try:
            return await self.request(path, action, **more)
        except Refused as refused:
            raise AssertionError(f"{action} of {path} was refused: {refused.message}") from refused

    async def request(self, path: str, action: str, **more: Any) -> Outcome:
        """The same; it may be refused."""
        ticket = await self.ask(path, action, **more)
        if ticket.admission.refusal:
            raise ticket.admission.refusal.to_error()
        return await self.end(ticket)

    async def cancel(self, path: str) -> None:
        """Cancel what runs there, however long there is no worker.

        It may be over: a worker that died had done it, and it was asked for again. The outcome says how it ended.
        """
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await self.asking.cancel_action(path)
                except (NoWorker, Unanswered):
                    continue
                except Refused as refused:
                    if "no action runs" not in refused.message:
                        raise
                    return

    async def see(self, path: str) -> ObjectView:
        """Read an object; waits for a worker if none runs."""
        return await self.patiently(wire.READ_OBJECT, ReadQuery(path=path), ObjectView)

    async def history(self, path: str) -> list[HistoryLine]:
        return (await self.patiently(wire.READ_HISTORY, ReadQuery(path=path), HistoryView)).lines

    async def verify(self, *prefixes: str) -> list[InvariantViolation]:
        """What `starter verify` finds at or below these paths."""
        found = [
            await self.patiently(wire.VERIFY_ACTIVITY, ReadQuery(path=prefix), VerificationReport)
            for prefix in prefixes
        ]
        return [finding for report in found for finding in report.findings]

    async def patiently(self, activity: str, query: BaseModel, answer: type[T]) -> T:
        """Ask a worker, however long there is none."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                return await self.asking.run_query(activity, query, answer, seconds=30)
            except (Unanswered, NoWorker):
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.2)

    async def is_running(self, workflow: str) -> bool:
        found = await self.asking.newest_run(workflow)
        return bool(found and found.status and found.status.name == "RUNNING")

    # Faults of the world outside.

    async def fault(self, **fault: Any) -> None:
        async with self._script:
            await self.cloud.add_fault(Fault(**fault))

    async def fault_free(self, path: str) -> None:
        """Remove the faults of this story."""
        mine = re.compile(rf"\b{path.split(':')[1]}\b")
        await self._without(lambda fault: bool(mine.search(fault.vm) or mine.search(fault.region)))

    async def calm(self, message: str) -> None:
        """Remove the faults with this message."""
        await self._without(lambda fault: fault.message == message)

    async def _without(self, over: Callable[[Fault], bool]) -> None:
        async with self._script:
            faults = await self.cloud.list_faults()
            kept = [fault for fault in faults if not over(fault)]
            if len(kept) < len(faults):
                await self.cloud.set_faults(kept)

    async def books(self, prefix: str) -> list[SimulatedVm]:
        return [vm for vm in await self.cloud.list_all_vms() if vm.path.startswith(f"{prefix}:")]

    # The worker.

    @property
    def crash_file(self) -> Path:
        return self.home / "crash"

    def arm(self, *points: str) -> None:
        """Let the worker die when it next reaches this point; of several, at the last one."""
        self.crash_file.write_text("\n".join(points))

    def set_clock(self, ahead: float) -> None:
        """Set the worker's clock this many seconds ahead."""
        (self.home / "clock").write_text(str(ahead))

    @asynccontextmanager
    async def traced(self) -> AsyncIterator[list[str]]:
        """Collects the points that are reached meanwhile, in order."""
        trace = self.crash_file.with_suffix(".trace")
        trace.unlink(missing_ok=True)
        self.arm(TRACE)
        found: list[str] = []
        yield found
        self.arm()
        found += trace.read_text().splitlines()

    async def start_worker(self, address: str = "") -> None:
        """`address`: where it finds Temporal, if not at the server itself."""
        environment = os.environ | {
            "RATCHET_HOME": str(self.home),
            "CRASH_FILE": str(self.crash_file),
            "CLOCK_FILE": str(self.home / "clock"),
            "TEMPORAL_ADDRESS": address or self.server.address,
            "RATCHET_SIMULATED_LATENCY": "0.05",
            "RATCHET_HEAL_INTERVAL": "0",  # only when a story asks for it
            "RATCHET_LOG_LEVEL": "error",
            **{f"RATCHET_{name.upper()}": value for name, value in PROCESS_BACKEND.items()},
            **self.settings,
        }
        self.worker = await self.forkserver.start([], environment, os.devnull, "tests.chaos.shifted")
        self._death = asyncio.create_task(self.worker.wait())
        async with asyncio.timeout(PATIENCE):
            while not await self.asking.count_pollers(ACTIONS_QUEUE):
                await asyncio.sleep(0.1)

    async def worker_died(self) -> None:
        assert self._death
        await asyncio.shield(self._death)

    async def kill_worker(self) -> None:
        if self.worker and self.worker.returncode is None:
            self.worker.kill()
            await self.worker_died()

    async def restart_server(self) -> None:
        """kill -9, and back on the same files and the same port."""
        self.server.process.kill()
        await self.server.process.wait()
        _, port = self.server.address.split(":")
        self.server = await embedded.start_server(self.home, port=int(port), tuning=TUNING)


@asynccontextmanager
async def forkserver(known: ForkServer | None = None) -> AsyncIterator[ForkServer]:
    """Forks workers from a process that has loaded everything, because loading takes too long for so many kills."""
    opened = known or await ForkServer.open()
    try:
        yield opened
    finally:
        if opened is not known:
            await opened.close()


@asynccontextmanager
async def world(home: Path, workers: ForkServer | None = None, **settings: str) -> AsyncIterator[World]:
    """A new world, with a worker in it, which has these settings."""
    home.mkdir(parents=True, exist_ok=True)
    async with forkserver(workers) as opened:
        server = await embedded.start_server(home, tuning=TUNING)
        clouds = Database(WorkerSettings(home=home).cloud_database_url())
        cloud, hypervisor = SimulatedCloud("aws", clouds), SimulatedHypervisor(clouds)
        made = World(
            home,
            server,
            await connect_temporal(home, temporal_plugin(), retry_config=PATIENT),
            cloud,
            clouds,
            hypervisor,
            Crms(home),
            opened,
            settings,
        )
        try:
            await made.start_worker()
            yield made
        finally:
            for key in list(made.crms.running):
                await made.crms.end(*key)
            for webhook in made.crms.webhooks.values():  # of stories that did not end
                await webhook.close()
            await made.kill_worker()
            clouds.close()
            await made.server.stop_server()
