"""A worker killed with -9 in the middle of an action. Run: python3 run.py bench recovery

Two workers serve the queues, each a process. How much longer than undisturbed an action takes if one of them is killed,
early or late, and never comes back. Then the memory of a worker: idle, and at most in an action on 10,000 VMs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.stack import WorkerProcesses, mci, run_server
from client.actions import ActionClient
from client.connection import connect_temporal
from domain.model import ActionResult, Request
from workers import logs
from workers.plugin import temporal_plugin

TURNS = 5
PATH = "ns:bench:mci:web"
VERBS = ("suspend", "resume")


@asynccontextmanager
async def site(latency: float) -> AsyncIterator[tuple[ActionClient, WorkerProcesses]]:
    """A server, and a client of it."""
    async with run_server() as home:
        asking = ActionClient(await connect_temporal(home, temporal_plugin()))
        workers = WorkerProcesses(asking, home, latency, jitter=0.5)
        try:
            yield asking, workers
        finally:
            await workers.end_all()


async def do(asking: ActionClient, action: str, vms: int = 0) -> float:
    """The seconds of an action that must succeed."""
    began = time.perf_counter()
    spec = mci(10, vms) if vms else None
    ticket = await asking.request_action(Request(path=PATH, action=action, spec=spec))
    outcome = await asking.wait_for_outcome(PATH, ticket.run)
    assert outcome.result is ActionResult.SUCCEEDED, outcome
    return time.perf_counter() - began


async def measure_recovery() -> None:
    """Measures what a kill adds to an action on 2,000 VMs that take half a second each, at moments all along it."""
    async with site(latency=0.5) as (asking, workers):
        await workers.start()
        await do(asking, "create", 2_000)
        quiet = statistics.median([await do(asking, VERBS[turn % 2]) for turn in range(4)])
        added = []
        for turn in range(TURNS):
            victim = await workers.start()
            action = asyncio.create_task(do(asking, VERBS[turn % 2]))
            await asyncio.sleep(quiet * (turn + 1) / (TURNS + 1))
            os.kill(victim.pid, signal.SIGKILL)
            added.append(await action - quiet)
    print(f"an action of {quiet:.1f} s in which one of two workers is killed takes longer by")
    print(
        f"  {', '.join(f'{each:.1f} s' for each in sorted(added))}; median {statistics.median(added):.1f} s (goal 3 s)"
    )


async def measure_memory() -> None:
    """Measures the memory of a worker without work, and at most in an action on 10,000 VMs."""
    async with site(latency=0) as (asking, workers):
        worker = await workers.start()
        idle = memory_mb(worker.pid, "VmRSS")
        await do(asking, "create", 10_000)
        await do(asking, "suspend")
        most = memory_mb(worker.pid, "VmHWM")
    print(f"memory of a worker, with its simulated clouds: idle {idle:.0f} MB (goal 100 MB)")
    print(f"  at most in create and suspend of 10,000 VMs {most:.0f} MB (goal 150 MB)")


def memory_mb(pid: int, which: str) -> float:
    """Returns a line of /proc/PID/status, in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{which}:")[2].split()[0]) / 1024


async def main() -> None:
    logs.configure_logging("error", "console")
    await measure_recovery()
    await measure_memory()


if __name__ == "__main__":
    asyncio.run(main())
