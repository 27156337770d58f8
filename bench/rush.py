"""A rush: 1,000 requests within one second, each on an MCI of its own. Run: python3 run.py bench rush

The client is a process of its own. Each request is sent once; the baseline is as many bare update-with-starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import Client, RPCTimeoutOrCancelledError

from bench import baselines
from bench.stack import (
    mci,
    print_comparison,
    print_result_row,
    print_table_head,
    rig,
    run,
    run_at_once,
    run_bare_update,
)
from client.actions import ActionClient
from client.errors import Unreachable
from domain.model import Request
from workers.plugin import temporal_plugin

REQUESTS = 1_000
PATH = "ns:rush:mci:m{}"


async def rush(work: Callable[[int], Awaitable[Any]]) -> list[float]:
    """Sends all requests within one second. Returns the seconds until the answer of each that was answered."""
    times: list[float] = []

    async def send(number: int) -> None:
        await asyncio.sleep(number / REQUESTS)
        began = time.perf_counter()
        try:
            await work(number)
        except (Unreachable, RPCTimeoutOrCancelledError) as error:  # the latter: what a bare call of the SDK raises
            print(error, file=sys.stderr)
        else:
            times.append(time.perf_counter() - began)

    await asyncio.gather(*map(send, range(REQUESTS)))
    return times


async def be_client(address: str) -> None:
    """The client's process: prints the times of ours and of the baseline."""
    client = await Client.connect(address, plugins=[temporal_plugin()])
    asking = ActionClient(client)
    tickets: list[tuple[str, str]] = []

    async def ours(number: int) -> None:
        path = PATH.format(number)
        ticket = await asking.request_action(Request(path=path, action="suspend"))
        assert ticket.admission.grant, ticket.admission.refusal
        tickets.append((path, ticket.run))

    bare = await rush(lambda number: run_bare_update(client, baselines.Answering, f"rush-{number}"))
    began = time.perf_counter()
    times = await rush(ours)
    outcomes = await asyncio.gather(*(asking.wait_for_outcome(*ticket) for ticket in tickets))
    whole = time.perf_counter() - began
    print(json.dumps({"ours": times, "bare": bare, "ended": len(outcomes), "seconds": whole}))


async def main() -> None:
    async with rig(simulated=False) as bench:
        await run_at_once(100, (bench.do(PATH.format(number), "create", mci(1, 1)) for number in range(REQUESTS)))
        words = (sys.executable, "-m", "bench.rush", bench.client.service_client.config.target_host)
        process = await asyncio.create_subprocess_exec(*words, stdout=PIPE, env=os.environ)
        out, _ = await process.communicate()
    found = json.loads(out)
    ours, bare = found["ours"], found["bare"]
    print_table_head("1,000 requests in one second, each on an MCI of its own: until admitted", "ours", "bare")
    for label, at in (("the middle one", 50), ("99 of 100", 99)):
        mine, theirs = (statistics.quantiles(times, n=100)[at - 1] for times in (ours, bare))
        print_comparison(label, mine, theirs, "{:.2f} s", "told")
    print_result_row("answered", f"{len(ours)}", f"{len(bare)}", len(ours) / REQUESTS, "= 1")
    share = statistics.quantiles(ours, n=100)[98] / found["seconds"]
    print(f"all {found['ended']} actions had ended after {found['seconds']:.1f} s")
    print(f"99 of 100 were admitted in the first {share:.0%} of that time")


if __name__ == "__main__":
    run(be_client(sys.argv[1]) if len(sys.argv) > 1 else main())
