"""The edge's speed: 200 AppInst creates on 20 cloudlets at once, against bare workflows that wait for one signal.

Run: python3 run.py bench edge
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.client import WorkflowHandle
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from bench.rig import Rig, head, in_turns, rig, row, run
from bench.signalled import QUEUE, WaitForSignal
from providers.edge.agent import Agent
from providers.edge.handover import Handover
from providers.edge.platform import Platform
from providers.edge.token import Token

CLOUDLETS, APPS = 20, 10
TURNS = 5


@asynccontextmanager
async def cloudlets(rig: Rig) -> AsyncIterator[list[str]]:
    """Twenty cloudlets with a cluster each, and reference CRMs whose work takes no time."""
    paths = [f"org:bench:cloudlet:c{n}" for n in range(CLOUDLETS)]
    with tempfile.TemporaryDirectory() as folder:
        platforms = [Platform(Path(folder) / f"{n}.db") for n in range(CLOUDLETS)]
        agents = [
            Agent(
                rig.client,
                path,
                "v1",
                platform,
                Handover(platform, "v1", ["false"]),
                Token(platform.file.with_suffix(".token")),
                latency=0,
            )
            for path, platform in zip(paths, platforms, strict=True)
        ]
        serving = [asyncio.create_task(agent.run()) for agent in agents]
        try:
            await asyncio.gather(*(rig.do(path, "create") for path in paths))
            await asyncio.gather(*(rig.do(f"{path}:cluster:k", "create") for path in paths))
            yield paths
        finally:
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            for platform in platforms:
                platform.close()


async def apps(rig: Rig, paths: list[str], turn: int) -> None:
    names = [f"{path}:cluster:k:app:a{turn}-{n}" for path in paths for n in range(APPS)]
    done = await asyncio.gather(*(rig.do(name, "create") for name in names))
    assert {outcome.status for outcome in done} == {"Ready"}


async def signalled(rig: Rig, turn: int) -> None:
    """Start, wait, signal, result: the least that an action must pay that waits for an answer.

    The signals go out when all have been started: one that came before its workflow waits would save it a task.
    """
    names = [f"signal-{turn}-{n}" for n in range(CLOUDLETS * APPS)]
    started = [rig.client.start_workflow(WaitForSignal.run, 1, id=name, task_queue=QUEUE) for name in names]
    handles = await asyncio.gather(*started)

    async def one(handle: WorkflowHandle[WaitForSignal, int]) -> None:
        await handle.signal(WaitForSignal.answer, 1)
        await handle.result()

    await asyncio.gather(*map(one, handles))


async def main() -> None:
    async with rig(simulated=False) as fast:
        baseline = Worker(
            fast.client,
            task_queue=QUEUE,
            workflows=[WaitForSignal],
            build_id="bare",
            workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        )
        async with baseline, cloudlets(fast) as paths:
            ours, theirs = await in_turns(TURNS, lambda n: apps(fast, paths, n), lambda n: signalled(fast, n))
    total = CLOUDLETS * APPS
    a, b = total / ours, total / theirs
    head(f"{total} AppInst creates on {CLOUDLETS} cloudlets at once, CRMs that take no time", "ours", "bare")
    row("actions per second (bare: workflow that waits for a signal)", f"{a:.0f}/s", f"{b:.0f}/s", a / b, ">= 0.5")


if __name__ == "__main__":
    run(main())
