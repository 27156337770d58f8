"""The rig of the benchmarks: an embedded server, a worker for everything, and a worker for the bare baselines."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from bench import baselines
from bench.instant import InstantCloud
from client.actions import ActionClient, Ticket
from client.connection import connect_temporal
from domain.limits import CAPS_BY_CLOUD
from domain.model import Outcome, Request
from domain.wire import ACTIONS_QUEUE
from workers import embedded, logs
from workers.datafolder import secure_data_folder
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings


@dataclass
class BenchStack:
    client: Client
    service: WorkerService
    asking: ActionClient

    async def run_bare_workflows(self, name: str, number: int) -> None:
        """Runs so many times at once the least that an action costs: a workflow with one activity."""
        run, queue = baselines.OneActivity.run, baselines.QUEUE
        names = (f"{name}-{n}" for n in range(number))
        await asyncio.gather(*(self.client.execute_workflow(run, 1, id=each, task_queue=queue) for each in names))

    async def run_same_steps(
        self, name: str, steps: Any = baselines.SameSteps, queue: str = baselines.QUEUE, vms: int = 1
    ) -> None:
        """Runs what an action costs at least if it is admitted by an update and leaves records, as ours are."""
        await run_bare_update(self.client, steps, name, queue, vms)
        await self.client.get_workflow_handle(name).result()

    async def run_many_same_steps(
        self, name: str, number: int, steps: Any = baselines.SameSteps, queue: str = baselines.QUEUE
    ) -> None:
        """Runs them so many times at once."""
        await asyncio.gather(*(self.run_same_steps(f"{name}-{n}", steps, queue) for n in range(number)))

    async def request(self, path: str, action: str, spec: dict[str, Any] | None = None) -> Ticket:
        """Requests an action that must be admitted."""
        ticket = await self.asking.request_action(Request(path=path, action=action, spec=spec))
        if ticket.admission.refusal:
            raise ticket.admission.refusal.to_error()
        return ticket

    async def do(self, path: str, action: str, spec: dict[str, Any] | None = None) -> Outcome:
        """Carries out one action, from the request to the outcome."""
        ticket = await self.request(path, action, spec)
        return await self.asking.wait_for_outcome(ticket.path, ticket.run)

    async def events(self, path: str) -> int:
        """Returns the number of history events of the newest run on a path."""
        return len((await self.client.get_workflow_handle(path).fetch_history()).events)


async def run_bare_update(client: Client, bare: Any, name: str, queue: str = baselines.QUEUE, given: int = 1) -> None:
    """Starts a bare workflow with its update, and waits for the answer to that."""
    operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        bare.run, given, id=name, task_queue=queue, id_conflict_policy=WorkflowIDConflictPolicy.FAIL
    )
    await client.execute_update_with_start_workflow(bare.answer, 1, start_workflow_operation=operation)


@asynccontextmanager
async def run_server() -> AsyncIterator[Path]:
    """Runs an embedded server. Yields the home folder that it has."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        secure_data_folder(home)  # as a worker's: a second worker refuses one that others may read
        server = await embedded.start_server(home)
        try:
            yield home
        finally:
            await server.stop_server()  # also when a benchmark fails


@asynccontextmanager
async def rig(
    latency: float = 0.0, jitter: float = 0.0, simulated: bool = True, connections: Path | None = None
) -> AsyncIterator[BenchStack]:
    """Starts a rig on simulated clouds, or on clouds that answer at once, so that only our own time is measured.

    With a connections file, on the real providers that it names.
    """
    logs.configure_logging("error", "console")
    async with run_server() as home:
        client = await connect_temporal(home, temporal_plugin())
        settings = WorkerSettings(
            home=home, simulated_latency=latency, simulated_jitter=jitter, connections=connections
        )
        service = WorkerService(client, settings, None if simulated else dict.fromkeys(CAPS_BY_CLOUD, InstantCloud()))
        service.prepare_databases()
        baseline = Worker(
            client,
            task_queue=baselines.QUEUE,
            workflows=[baselines.OneActivity, baselines.ManyActivities, baselines.Answering, baselines.SameSteps],
            activities=[baselines.nothing, baselines.Journal(home / "journal.db").write],
            build_id="bare",
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.step_patience),
            workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
            activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        )
        async with service.serve_queues(), baseline:
            yield BenchStack(client, service, ActionClient(client))
        await service.close()


class WorkerProcesses:
    """Workers in processes of their own, which serve the queues of one home with these simulated clouds."""

    def __init__(self, asking: ActionClient, home: Path, latency: float, jitter: float) -> None:
        self._environment = os.environ | {
            "RATCHET_HOME": str(home),
            "TEMPORAL_ADDRESS": asking.client.service_client.config.target_host,
            "RATCHET_SIMULATED_LATENCY": str(latency),
            "RATCHET_SIMULATED_JITTER": str(jitter),
            "RATCHET_LOG_LEVEL": "error",
        }
        self._asking = asking
        self._running: list[Process] = []

    async def start(self) -> Process:
        """Starts one more worker. Returns it when it polls."""
        there = await self._asking.count_pollers(ACTIONS_QUEUE)
        words = (sys.executable, "-m", "workers")
        process = await asyncio.create_subprocess_exec(*words, env=self._environment, stdout=DEVNULL)
        self._running.append(process)
        while await self._asking.count_pollers(ACTIONS_QUEUE) <= there:  # noqa: ASYNC110  another process
            await asyncio.sleep(0.1)
        return process

    async def end_all(self) -> None:
        for process in self._running:
            if process.returncode is None:
                process.kill()
            await process.wait()


@asynccontextmanager
async def run_extra_workers(rig: BenchStack, number: int) -> AsyncIterator[None]:
    """Starts workers in separate processes that serve the same queues."""
    settings = rig.service.settings
    workers = WorkerProcesses(rig.asking, settings.home, settings.simulated_latency, settings.simulated_jitter)
    try:
        for _ in range(number):
            await workers.start()
        yield
    finally:
        await workers.end_all()


def mci(regions: int, vms: int, csps: Sequence[str] = ("aws", "azure", "gcp", "alibaba")) -> dict[str, Any]:
    """Returns a spec of `vms` VMs spread evenly over `regions` regions of these clouds."""
    groups = [
        {"name": f"g{n}", "subGroupSize": vms // regions, "csp": csps[n % len(csps)], "region": f"r{n // len(csps)}"}
        for n in range(regions)
    ]
    return {"subGroups": groups}


async def run_at_once(most: int, works: Iterable[Awaitable[Any]]) -> None:
    """Runs all works, so many at a time; each is made when its turn comes."""
    todo = iter(works)

    async def lane() -> None:
        for work in todo:
            await work

    await asyncio.gather(*(lane() for _ in range(most)))


async def measure_seconds(work: Awaitable[Any]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


async def measure_in_turns(times: int, *works: Callable[[int], Awaitable[Any]], warm_up: int = 1) -> list[float]:
    """Returns the median time of each work. The works are measured in turns; the first turns are warm-up.

    Within a turn the order is random: the server still works for what ran last, longer for some works than for others.
    """
    turns = [[0.0] * len(works) for _ in range(times)]
    for n, turn in enumerate(turns):
        for which in random.sample(range(len(works)), len(works)):
            turn[which] = await measure_seconds(works[which](n))
    return [statistics.median(column) for column in zip(*turns[warm_up:], strict=True)]


@dataclass
class CpuUse:
    """CPU seconds of this process and its children, and the share of time for which the machine's cores were idle."""

    ours: float = 0.0
    idle: float = 0.0


@contextmanager
def measure_cpu() -> Iterator[CpuUse]:
    """Measures the CPU that the block uses, and how busy the machine is, other programs included."""
    found, ours, (idle, total) = CpuUse(), _cpu_seconds(), _core_ticks()
    yield found
    idle_after, total_after = _core_ticks()
    found.ours, found.idle = _cpu_seconds() - ours, (idle_after - idle) / max(1, total_after - total)


def _cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of the children that it has now."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if os.getpid() in (int(fields[1]), int(stat.parent.name)):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _core_ticks() -> tuple[int, int]:
    """Returns how long all cores were idle, and how long they were there."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def memory(pid: int | str = "self") -> float:
    """Returns the memory of a process in megabytes: of this one, with worker and client, or of another."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


def print_comparison(what: str, ours: float, baseline: float, shown: str, limit: str) -> None:
    """Prints both numbers, each as the format string has it, and their ratio."""
    print_result_row(what, shown.format(ours), shown.format(baseline), ours / baseline, limit)


def print_result_row(what: str, ours: str, baseline: str, ratio: float, limit: str) -> None:
    print(f"{what:<58} {ours:>14} {baseline:>14} {ratio:>8.2f}   {limit}")


def print_table_head(title: str, *columns: str) -> None:
    print(f"\n{title}\n{'':<58} {columns[0]:>14} {columns[1]:>14} {'ratio':>8}   required")


def run(main: Coroutine[Any, Any, None]) -> NoReturn:
    """Runs a benchmark and exits at once, as the SDK's threads can abort a slow interpreter exit."""
    asyncio.run(main)
    sys.stdout.flush()
    os._exit(0)
