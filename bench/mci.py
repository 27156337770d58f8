"""MCIs of 100, 1,000 and 10,000 VMs in 20 regions of 5 simulated clouds: python3 run.py bench mci

Required: every action succeeds; the worker's memory stays under 500 MB, the history under 500 events, every payload
under 256 KB; and time grows no faster than the number of VMs.
"""

from __future__ import annotations

import math
import resource
from collections import Counter
from typing import Any

import sqlalchemy as sa

from bench.stack import BenchStack, mci, measure_seconds, rig, run
from domain.faults import Fault, FaultKind
from domain.mci.messages import SurveyRequest
from domain.model import ActionResult, Outcome
from starter.mci import requests

CSPS = ("aws", "azure", "gcp", "alibaba", "tencent")
REGIONS = 20
SIZES = (100, 1_000, 10_000)
MOST_MEMORY, MOST_EVENTS, MOST_PAYLOAD = 500, 500, 256 * 1024


async def time_action(bench: BenchStack, path: str, action: str, spec: dict[str, Any] | None = None) -> float:
    """Carries out an action that must succeed. Returns its seconds."""

    async def do() -> None:
        outcome: Outcome = await bench.do(path, action, spec)
        assert outcome.result is ActionResult.SUCCEEDED, outcome

    return await measure_seconds(do())


async def run_life_cycle(bench: BenchStack, size: int, events: Counter[str]) -> dict[str, float]:
    """Carries out the actions of one MCI from create to delete. Returns the seconds of each."""
    path = f"ns:bench:mci:m{size}"
    took: dict[str, float] = {}
    for action in ("create", "suspend", "resume", "reboot", "terminate", "delete"):
        took[action] = await time_action(bench, path, action, mci(REGIONS, size, CSPS) if action == "create" else None)
        await check_history_size(bench, path, f"{action} {size}", events)
        if action == "create":
            took["status"] = await measure_seconds(bench.asking.read_object(path))
            took["refresh"] = await measure_seconds(requests.run_survey(bench.asking, SurveyRequest(path=path)))
    return took


async def check_history_size(bench: BenchStack, path: str, what: str, events: Counter[str]) -> None:
    """Records the number of history events, and the size of the largest; fails above the limits."""
    history = await bench.client.get_workflow_handle(path).fetch_history()
    heaviest = max(event.ByteSize() for event in history.events)
    events[what] = len(history.events)
    assert len(history.events) < MOST_EVENTS, f"{what}: {len(history.events)} events"
    assert heaviest < MOST_PAYLOAD, f"{what}: an event of {heaviest} bytes"
    events["heaviest"] = max(events["heaviest"], heaviest)


async def measure_status_read(bench: BenchStack, size: int) -> None:
    """Measures the store and cloud calls of a status read of many VMs, half of them suspended."""
    path = "ns:bench:mci:half"
    groups = mci(REGIONS, size, CSPS)["subGroups"]
    halves = [
        {**group, "name": f"{group['name']}{side}", "subGroupSize": group["subGroupSize"] // 2}
        for group in groups
        for side in ("a", "b")
    ]
    await time_action(bench, path, "create", {"subGroups": halves})
    cloud = bench.service.simulated["aws"]
    await cloud.set_faults([Fault(kind=FaultKind.FAIL, verb="suspend", vm="*b-*")])  # these stay Running
    assert (await bench.do(path, "suspend")).done == size // 2
    await cloud.clear_faults()
    statements: list[str] = []

    def count(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(("BEGIN", "PRAGMA")):
            statements.append(statement)

    sa.event.listen(bench.service.database.engine, "before_cursor_execute", count)
    seconds = await measure_seconds(bench.asking.read_object(path))
    counted = len(statements)
    statements.clear()
    report = await requests.run_survey(bench.asking, SurveyRequest(path=path))
    print(f"\nA status read of {size:,} VMs, half of them suspended")
    print(f"  the MCI's status and counts: {counted} queries, no cloud call, {seconds * 1e3:.0f} ms")
    print(f"  with --refresh: {len(statements)} queries, {report.calls} cloud calls about {report.asked:,} VMs;")
    print(f"  {report.saved:,} VMs needed none")
    assert (report.asked, report.saved) == (size // 2, size // 2)
    assert report.calls == REGIONS


async def main() -> None:
    events: Counter[str] = Counter()
    async with rig() as bench:
        await run_life_cycle(bench, 20, Counter())  # warms up
        took = {size: await run_life_cycle(bench, size, events) for size in SIZES}
        print(f"MCIs in {REGIONS} regions of {len(CSPS)} simulated clouds without latency, in seconds")
        print(f"{'':<12}" + "".join(f"{size:>10,}" for size in SIZES) + f"{'exponent':>12}{'events':>9}")
        for action in took[SIZES[0]]:
            row = [took[size][action] for size in SIZES]
            exponent = math.log(row[-1] / row[0]) / math.log(SIZES[-1] / SIZES[0])
            length = events.get(f"{action} {SIZES[-1]}", "")
            print(f"{action:<12}" + "".join(f"{each:>10.2f}" for each in row) + f"{exponent:>12.2f}{length:>9}")
        await measure_status_read(bench, SIZES[-1])
        print(f"\nheaviest event {events['heaviest'] / 1024:.0f} KB (limit {MOST_PAYLOAD // 1024})")
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"memory of client, worker and clouds in one process {most} MB (limit {MOST_MEMORY} for the worker)")
        assert most < MOST_MEMORY


if __name__ == "__main__":
    run(main())
