"""Tenants beside each other: how long one tenant's actions take while another floods the same workers.

Run: python3 run.py bench tenants
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from unittest.mock import patch

from temporalio.common import Priority

from bench.flood import FLOOD, LOUD, UNFAIR
from bench.stack import BenchStack, mci, measure_seconds, p95, print_comparison, print_table_head, rig, run, run_at_once
from client import launching
from domain.quotafile import Quotas
from domain.quotas import Quota, QuotaQuery
from workflows import calls

LIMIT = 2.0
TURNS = 30  # actions of the quiet tenant in each part
MANY = 100  # in the two that are compared: of fewer, the last five of a hundred would be a matter of chance
QUOTAS = Quotas(tenants={"*": Quota(open_actions=4, requests_per_minute=300)})  # the rate of examples/quotas.yaml
QUIET = "ns:quiet:mci:web"


async def measure(bench: BenchStack, turns: int = TURNS) -> list[float]:
    """The seconds of each of the quiet tenant's actions, from the request to the outcome, one after the other."""
    return [await measure_seconds(bench.do(QUIET, ("suspend", "resume")[number % 2])) for number in range(turns)]


@asynccontextmanager
async def flood(bench: BenchStack, *how: str) -> AsyncIterator[None]:
    """The other tenant's users ask all the time, from a process of their own."""
    command = (sys.executable, "-m", "bench.flood", str(bench.service.settings.home), *how)
    environment = os.environ | {"TEMPORAL_ADDRESS": bench.client.service_client.config.target_host}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdin=PIPE, stdout=PIPE)
    assert process.stdin
    assert process.stdout
    try:
        assert await process.stdout.readline(), "the flood ended"
        yield
        process.stdin.write(b"\n")
        rates = (await process.stdout.readline()).decode().strip()
        assert rates, "the flood ended"
        print(f"the flood: {FLOOD} users who do not wait; in a second {rates}")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def is_minute_used_up(bench: BenchStack) -> bool:
    """Tells whether the flood has made all the requests that its minute has."""
    [row] = (await bench.service.inventory.read_quotas(QuotaQuery(tenant="ns:loud"))).tenants
    return row.used.requests >= (row.allowed.requests_per_minute or 0) - 1


async def main() -> None:
    async with rig(simulated=False) as bench:
        await bench.do(QUIET, "create", mci(1, 2))
        await run_at_once(8, (bench.do(LOUD.format(n), "create", mci(1, 1)) for n in range(FLOOD)))
        await measure(bench)  # everything is warm
        quiet = await measure(bench, MANY)
        async with flood(bench):
            fair = await measure(bench)
        with (
            patch.object(launching, "tenant_priority", lambda _path: Priority.default),
            patch.object(calls, "tenant_priority", lambda _id: Priority.default),
        ):
            async with flood(bench, UNFAIR):
                unfair = await measure(bench)
        bench.service.inventory.current_quotas = lambda: QUOTAS
        async with flood(bench):
            burst = await measure(bench)
            while not await is_minute_used_up(bench):  # noqa: ASYNC110  a minute's worth may come at once
                await asyncio.sleep(0.5)
            limited = await measure(bench, MANY)
    print_table_head("One tenant's action, from request to outcome, while another floods the workers", "flood", "quiet")
    parts = (
        ("p95 with fairness and quotas", limited),
        ("p95 while the flood uses up its minute's requests", burst),
        ("p95 with fairness alone", fair),
        ("p95 without both", unfair),
    )
    for which, times in parts:
        ours, usual = p95(times), p95(quiet)
        required = f"<= {LIMIT:g}" if times is limited else "-"
        print_comparison(which, 1000 * ours, 1000 * usual, "{:.0f} ms", required)


if __name__ == "__main__":
    run(main())
