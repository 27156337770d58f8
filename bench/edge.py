"""The edge's speed: 200 AppInst creates on 20 cloudlets at once, against bare workflows that wait for one signal.

Run: python3 run.py bench edge
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.worker import PollerBehaviorAutoscaling, Worker

from bench import signalbaseline as baselines
from bench.baselines import Journal
from bench.stack import BenchStack, measure_in_turns, print_comparison, print_table_head, rig, run
from providers.edge.crm import ReferenceCrm
from providers.edge.handover import CrmHandover
from providers.edge.platform import CloudletPlatform
from providers.edge.token import CrmToken

CLOUDLETS, APPS = 20, 10
TURNS = 5


@asynccontextmanager
async def run_cloudlets(rig: BenchStack) -> AsyncIterator[list[str]]:
    """Creates twenty cloudlets with a cluster each, and reference CRMs whose work takes no time."""
    paths = [f"org:bench:cloudlet:c{n}" for n in range(CLOUDLETS)]
    with tempfile.TemporaryDirectory() as folder:
        platforms = [CloudletPlatform(Path(folder) / f"{n}.db") for n in range(CLOUDLETS)]
        agents = [
            ReferenceCrm(
                rig.client,
                path,
                "v1",
                platform,
                CrmHandover(platform, "v1", ["false"]),
                CrmToken(platform.file.with_suffix(".token")),
                latency=0,
            )
            for path, platform in zip(paths, platforms, strict=True)
        ]
        serving = [asyncio.create_task(agent.serve_until_stopped()) for agent in agents]
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


async def create_apps(rig: BenchStack, paths: list[str], turn: int) -> None:
    names = [f"{path}:cluster:k:app:a{turn}-{n}" for path in paths for n in range(APPS)]
    done = await asyncio.gather(*(rig.do(name, "create") for name in names))
    assert {outcome.status for outcome in done} == {"Ready"}


async def signalled(rig: BenchStack, turn: int) -> None:
    """Runs bare workflows that wait for one signal: the least that an action costs that waits for an answer."""
    loop, waiting = asyncio.get_running_loop(), defaultdict[str, asyncio.Event](asyncio.Event)

    def waits(name: str) -> None:
        loop.call_soon_threadsafe(waiting[name].set)  # called in a workflow's thread

    baselines.waits = waits

    async def one(name: str) -> None:
        handle = await rig.client.start_workflow(baselines.WaitForSignal.run, 1, id=name, task_queue=baselines.QUEUE)
        await waiting[name].wait()
        await handle.signal(baselines.WaitForSignal.answer, 1)
        await handle.result()

    await asyncio.gather(*(one(f"signal-{turn}-{n}") for n in range(CLOUDLETS * APPS)))


@asynccontextmanager
async def run_baseline_workers(rig: BenchStack) -> AsyncIterator[None]:
    crm = baselines.BareCrm(rig.client)
    waiting = Worker(
        rig.client,
        task_queue=baselines.QUEUE,
        workflows=[baselines.WaitForSignal, baselines.AskAndWait],
        activities=[crm.send_request, Journal(rig.service.settings.home / "signals.db").write],
        build_id="bare",
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
    )
    answering = Worker(
        rig.client,
        task_queue=baselines.CRM_QUEUE,
        activities=[crm.answer_request],
        build_id="bare",
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
    )
    async with waiting, answering:
        yield


async def main() -> None:
    total = CLOUDLETS * APPS
    async with rig(simulated=False) as fast, run_baseline_workers(fast), run_cloudlets(fast) as paths:
        times = await measure_in_turns(
            TURNS,
            lambda n: create_apps(fast, paths, n),
            lambda n: signalled(fast, n),
            lambda n: fast.run_many_same_steps(f"steps-{n}", total, baselines.AskAndWait, baselines.QUEUE),
        )
    a, b, c = (total / seconds for seconds in times)
    print_table_head(
        f"{total} AppInst creates on {CLOUDLETS} cloudlets at once, CRMs that take no time", "ours", "bare"
    )
    print_comparison(
        "actions per second (bare: workflow that waits for a signal)", a, b, "{:.0f}/s", ">= 0.5 (goal 0.85)"
    )
    print_comparison("the same steps and commits, nothing of ours", c, b, "{:.0f}/s", "told: the floor")


if __name__ == "__main__":
    run(main())
