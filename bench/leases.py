"""Leases: many that wait, and many that start in the same second. Run: python3 run.py bench leases"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from unittest import mock

from temporalio.worker import PollerBehaviorAutoscaling, Worker

from activities.leases import CONCURRENT_FIRINGS
from bench import timerbaseline
from bench.baselines import Journal
from bench.stack import BenchStack, memory, print_comparison, print_table_head, rig, run, run_at_once
from domain.leases.dates import format_date
from domain.model import ActionEnding, ActionResult, Outcome

PENDING, TOGETHER = 5_000, 500
AT_ONCE = 50  # requests in flight
AHEAD = timedelta(seconds=20)  # from the last creation to the common start
TURNS = 2


async def main(pending: int, together: int) -> None:
    async with rig() as site, _timer_worker(site):
        await run_at_once(AT_ONCE, (site.do(f"pool:bench:host:h{n}", "add", {}) for n in range(together)))
        before = memory()
        began = time.perf_counter()
        tomorrow, hour = datetime.now(UTC) + timedelta(days=1), timedelta(hours=1)
        # Each host is booked hour after hour, from a day ahead.
        starts = (tomorrow + 2 * hour * (n // together) for n in range(pending))
        leases = (_create_lease(site, f"wait-{n}", start, start + hour) for n, start in enumerate(starts))
        await run_at_once(AT_ONCE, leases)
        took = time.perf_counter() - began
        print(f"\n{pending:,} pending leases on {together} hosts, {AT_ONCE} requests in flight")
        print(f"{'created':<58} {pending / took:>12.0f}/s")
        print(f"{'worker memory for them (process ' + f'{memory():.0f} MB)':<58} {memory() - before:>11.0f} MB")
        open_workflows = await site.client.count_workflows("ExecutionStatus = 'Running'")
        print(f"{'open workflows for them':<58} {open_workflows.count:>14}")
        turns = [
            (
                await _measure_bare_timers(site, together, n),
                await _measure_lease_starts(site, together, n),
                await _measure_bare_starts(site, together, n),
            )
            for n in range(TURNS)
        ]
    print_table_head(
        f"Lag of {together} starts in the same second, with {pending:,} others pending", "leases", "bare timers"
    )
    for what, part in (("the middle one (bare: the timer has fired)", 0), ("the last one", 1)):
        theirs, ours, least = (statistics.mean(turn[side][part] for turn in turns) for side in (0, 1, 2))
        print_comparison(what, ours, theirs, "{:.2f} s", "<= 2 (goal 1.2)")
        same = "  as many workflows with one commit, nothing of ours"
        print_comparison(same, least, theirs, "{:.2f} s", "told: the floor")


async def _create_lease(site: BenchStack, name: str, start: datetime, end: datetime) -> None:
    spec = {
        "hosts": 1,
        "pool": "bench",
        "start": format_date(start),
        "end": format_date(end),
        "before_end": format_date(end),
    }
    outcome = await site.do(f"project:bench:lease:{name}", "create", spec)
    assert outcome.result is ActionResult.SUCCEEDED


async def _measure_lease_starts(site: BenchStack, number: int, turn: int) -> tuple[float, float]:
    """Returns the lags from the common start until each lease is committed as ACTIVE: median and maximum."""
    due = _next_common_start(number)
    names = [f"together-{turn}-{n}" for n in range(number)]
    await run_at_once(AT_ONCE, (_create_lease(site, name, due, due + timedelta(hours=1)) for name in names))
    ended: dict[str, float] = {}

    inventory = site.service.inventory
    plain = inventory.finish_action

    async def finish(ending: ActionEnding) -> Outcome:
        outcome = await plain(ending)
        ended[ending.path] = (datetime.now(UTC) - due).total_seconds()
        return outcome

    with mock.patch.object(inventory, "finish_action", finish):
        async with asyncio.timeout(120):
            while len(ended) < number:  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(0.2)
    for name in names:
        assert (await site.service.inventory.read_object(f"project:bench:lease:{name}")).status == "ACTIVE"
    await run_at_once(AT_ONCE, (site.do(f"project:bench:lease:{name}", "delete") for name in names))
    return statistics.median(ended.values()), max(ended.values())


async def _measure_bare_timers(site: BenchStack, number: int, turn: int) -> tuple[float, float]:
    due = _next_common_start(number)
    ids = [f"sleeper-{turn}-{n}" for n in range(number)]
    sleeper, queue = timerbaseline.Sleeper.run, timerbaseline.QUEUE
    await run_at_once(AT_ONCE, (site.client.start_workflow(sleeper, due, id=name, task_queue=queue) for name in ids))
    woke: list[datetime] = await asyncio.gather(
        *(site.client.get_workflow_handle(name, result_type=datetime).result() for name in ids)
    )
    lags = [(each - due).total_seconds() for each in woke]
    return statistics.median(lags), max(lags)


async def _measure_bare_starts(site: BenchStack, number: int, turn: int) -> tuple[float, float]:
    """Returns the lags of as many workflows that are started at once, as many at a time as the clock starts leases."""
    began = time.perf_counter()
    lags: list[float] = []

    async def start(n: int) -> None:
        await site.client.execute_workflow(
            timerbaseline.OneCommit.run, n, id=f"commit-{turn}-{n}", task_queue=timerbaseline.QUEUE
        )
        lags.append(time.perf_counter() - began)

    await run_at_once(CONCURRENT_FIRINGS, map(start, range(number)))
    return statistics.median(lags), max(lags)


def _next_common_start(number: int) -> datetime:
    """Returns a full second that leaves enough time to prepare."""
    return datetime.now(UTC).replace(microsecond=0) + AHEAD + timedelta(seconds=number // 25)


def _timer_worker(site: BenchStack) -> Worker:
    return Worker(
        site.client,
        task_queue=timerbaseline.QUEUE,
        workflows=[timerbaseline.Sleeper, timerbaseline.OneCommit],
        activities=[Journal(site.service.settings.home / "starts.db").write],
        build_id="bare",
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
    )


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:3]]
    run(main(*(sizes or (PENDING, TOGETHER))))
