"""A client process: prints the median seconds from request to answer, ours and bare."""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections import defaultdict

from temporalio.client import Client

from bench import baselines
from bench.stack import measure_seconds, run, run_bare_update
from client.actions import ActionClient
from domain.model import Request
from workers.plugin import temporal_plugin

PATH = "ns:bench:mci:one"
TIMES = 60
Bare = type[baselines.Answering | baselines.SameSteps]


async def main(address: str) -> None:
    client = await Client.connect(address, plugins=[temporal_plugin()])
    asking = ActionClient(client)
    times: defaultdict[str, list[float]] = defaultdict(list)
    for n in range(TIMES):
        # A used workflow ID costs the server more than a new one, so each is compared with its like.
        for which, path, action, spec, bare_id in (
            ("used", PATH, ("suspend", "resume")[n % 2], None, "answer"),
            ("new", f"account:bench-{n}", "create", {}, f"answer-{n}"),
        ):
            request = Request(path=path, action=action, spec=spec)
            turns = {
                which: time_admission(asking, request),
                f"bare {which}": time_bare_update(client, baselines.Answering, f"bare-{bare_id}"),
                f"floor {which}": time_bare_update(client, baselines.SameSteps, f"floor-{bare_id}"),
            }
            # In random order: the server still works for the last one, longer for ours and the floor than for bare.
            for name in random.sample(list(turns), len(turns)):
                times[name].append(await turns[name])
    sys.stdout.write(json.dumps({name: statistics.median(each) for name, each in times.items()}))


async def time_admission(asking: ActionClient, request: Request) -> float:
    """Returns the seconds until the request is admitted; waits for its end."""
    start = time.perf_counter()
    ticket = await asking.request_action(request)
    seconds = time.perf_counter() - start
    await asking.wait_for_outcome(request.path, ticket.run)
    return seconds


async def time_bare_update(client: Client, bare: Bare, name: str) -> float:
    """Returns the seconds until a bare workflow answers its update; waits for its end."""
    seconds = await measure_seconds(run_bare_update(client, bare, name))
    await client.get_workflow_handle(name).result()
    return seconds


if __name__ == "__main__":
    run(main(sys.argv[1]))
