"""The kernel's speed against bare Temporal and plain asyncio. Run: python3 run.py bench"""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import UTC, datetime
from typing import Any

from temporalio.client import WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy

from activities.mci import token_of
from bench import bare
from bench.rig import Rig, best, head, mci, rig, row, run, timed
from domain.limits import CLOUDS
from domain.model import Claim, Ending, Landing, Request, Result
from domain.ports import Order, VmFacts
from domain.wire import split_placement

AT_ONCE = 200


async def throughput(rig: Rig) -> None:
    """One-VM actions, 200 at once, against bare workflows with one activity."""
    path = "ns:bench:mci:many"
    await rig.do(path, "create", mci(10, AT_ONCE))
    vms = [f"{path}:vm:g{n}-{i}" for n in range(10) for i in range(1, AT_ONCE // 10 + 1)]
    verbs = ["suspend", "resume"]
    ours, theirs = [], []
    for n in range(6):  # alternating, so that both meet the same weather
        ours.append(await timed(asyncio.gather(*(rig.do(vm, verbs[n % 2]) for vm in vms))))
        theirs.append(await timed(asyncio.gather(*(_bare(rig, f"one-{n}-{i}") for i in range(AT_ONCE)))))
    a, b = AT_ONCE / min(ours), AT_ONCE / min(theirs)
    head("Actions per second, 200 at once", "ours", "bare")
    row("one-VM actions (bare: workflow with one activity)", f"{a:.0f}/s", f"{b:.0f}/s", a / b, ">= 0.65 (goal 0.85)")


async def _bare(rig: Rig, name: str) -> int:
    return await rig.client.execute_workflow(bare.OneActivity.run, 1, id=name, task_queue=bare.QUEUE)


async def size(rig: Rig) -> None:
    """One action on 1,000 and on 10,000 VMs in 10 regions."""
    ours: dict[int, float] = {}
    events: dict[int, int] = {}
    plain: dict[int, float] = {}
    for vms in (1_000, 10_000):
        path = f"ns:bench:mci:size{vms}"
        await rig.do(path, "create", mci(10, vms))
        ours[vms] = await best(4, lambda n, path=path: rig.do(path, ["suspend", "resume"][n % 2]))  # type: ignore[misc]
        events[vms] = await rig.events(path)
        plain[vms] = await _plain(rig, f"ns:bench:mci:plain{vms}", mci(10, vms))
    bare_time = await best(
        6,
        lambda n: rig.client.execute_workflow(bare.ManyActivities.run, 10, id=f"ten-{n}", task_queue=bare.QUEUE),
    )
    head("One action on many VMs, zero-latency clouds", "ours", "baseline")
    label = "1,000 VMs, 10 regions (bare: 10 no-op activities)"
    row(label, f"{ours[1_000] * 1e3:.0f} ms", f"{bare_time * 1e3:.0f} ms", ours[1_000] / bare_time, "<= 3 (goal 1.5)")
    mine, theirs = [(times[10_000] - times[1_000]) / 9_000 for times in (ours, plain)]
    label = "each VM from 1,000 to 10,000 (plain asyncio, same writes)"
    row(label, f"{mine * 1e6:.0f} µs", f"{theirs * 1e6:.0f} µs", mine / theirs, "<= 3 (goal 1.5)")
    print(f"{'history events: 1,000 VMs, per region':<58} {events[1_000] / 10:>14.1f} {'':>23}   <= 10")
    print(f"{'history events: 10,000 VMs':<58} {events[10_000]:>14} {'':>23}   < 300")


async def _plain(rig: Rig, path: str, spec: dict[str, Any]) -> float:
    """The same action as a script would do it: the same writes and calls, in one process, nothing durable."""
    await rig.do(path, "create", spec)
    inventory, clouds, permits = rig.service.inventory, rig.service.clouds, rig.service.permits

    async def once(n: int) -> None:
        action, to = [("suspend", "Suspended"), ("resume", "Running")][n % 2]
        request = Request(path=path, action=action)
        admission = await inventory.begin(Claim(request=request, run=f"{path}{n}", at=datetime.now(UTC)))
        assert admission.grant
        grant = admission.grant

        async def place(chunk: Any) -> None:
            csp, region = split_placement(chunk.placement)
            todo = iter(await inventory.targets(chunk))
            landed: list[Landing] = []

            async def lane() -> None:
                for target in todo:
                    token = token_of(target.path, target.info["generation"], action, grant.epoch)
                    order = Order(target.path, token, target.info["cloud_id"])
                    async with permits.vms(csp, region):
                        [answer] = await clouds[csp].perform(action, region, [order])
                    assert isinstance(answer, VmFacts)
                    landed.append(Landing(target.path, to))

            await asyncio.gather(*(lane() for _ in range(permits.vm_cap(csp))))
            await inventory.land(chunk, landed, datetime.now(UTC))

        await asyncio.gather(*map(place, grant.chunks))
        await inventory.finish(Ending(epoch=grant.epoch, path=path, result=Result.SUCCEEDED, at=datetime.now(UTC)))

    return await best(4, once)


async def makespan() -> None:
    """With slow clouds: how near to the least time that the rate limits allow."""
    latency, jitter, regions, vms = 0.2, 0.5, 10, 3_000
    async with rig(latency, jitter) as slow:
        path = "ns:bench:mci:slow"
        await slow.do(path, "create", mci(regions, vms))
        took = await best(2, lambda n: slow.do(path, ["suspend", "resume"][n % 2]))
    places = [(group["csp"], group["subGroupSize"]) for group in mci(regions, vms)["subGroups"]]
    bound = max(size / CLOUDS[csp].vms * latency for csp, size in places)
    head("Makespan with clouds that take 200 ms ± 50 % per VM", "ours", "lower bound")
    label = f"{vms:,} VMs in {regions} regions under the caps"
    row(label, f"{took:.2f} s", f"{bound:.2f} s", took / bound, "<= 1.15 (goal 1.05)")


async def admission(rig: Rig) -> None:
    """From the request to admitted, one at a time, against a bare update-with-start."""
    path = "ns:bench:mci:one"
    await rig.do(path, "create", mci(1, 1))
    ours, theirs = [], []
    for n in range(60):
        request = Request(path=path, action=["suspend", "resume"][n % 2])
        start = time.perf_counter()
        ticket = await rig.asking.ask(request)
        ours.append(time.perf_counter() - start)
        await rig.asking.outcome(path, ticket.run)
        theirs.append(await timed(_answered(rig, n)))
    a, b = statistics.median(ours), statistics.median(theirs)
    head("From the request to admitted, median", "ours", "bare")
    row("update-with-start", f"{a * 1e3:.1f} ms", f"{b * 1e3:.1f} ms", a / b, "<= 1.5")


async def _answered(rig: Rig, n: int) -> None:
    operation = WithStartWorkflowOperation(
        bare.Answering.run,
        n,
        id=f"answer-{n}",
        task_queue=bare.QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
    )
    await rig.client.execute_update_with_start_workflow(bare.Answering.answer, n, start_workflow_operation=operation)


async def main() -> None:
    async with rig() as fast:
        await admission(fast)
        await throughput(fast)
        await size(fast)
    await makespan()


if __name__ == "__main__":
    run(main())
