"""A client process: prints the median seconds from request to answer, ours and bare."""

from __future__ import annotations

import json
import statistics
import sys
import time

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy

from bench import baselines
from bench.stack import measure_seconds, run
from client.actions import ActionClient
from domain.model import Request
from workers.plugin import temporal_plugin

PATH = "ns:bench:mci:one"
TIMES = 60


async def main(address: str) -> None:
    client = await Client.connect(address, plugins=[temporal_plugin()])
    asking = ActionClient(client)
    times: dict[str, list[float]] = {}
    for n in range(TIMES):
        # A used workflow ID costs the server more than a new one, so each is compared with its like.
        for which, path, action, spec, bare_id in (
            ("used", PATH, ("suspend", "resume")[n % 2], None, "answer"),
            ("new", f"account:bench-{n}", "create", {}, f"answer-{n}"),
        ):
            start = time.perf_counter()
            ticket = await asking.request_action(Request(path=path, action=action, spec=spec))
            times.setdefault(which, []).append(time.perf_counter() - start)
            await asking.wait_for_outcome(path, ticket.run)
            times.setdefault(f"bare {which}", []).append(await measure_seconds(_run_bare_update(client, bare_id, n)))
            await client.get_workflow_handle(bare_id).result()
    sys.stdout.write(json.dumps({name: statistics.median(each) for name, each in times.items()}))


async def _run_bare_update(client: Client, name: str, n: int) -> None:
    operation = WithStartWorkflowOperation(
        baselines.Answering.run,
        n,
        id=name,
        task_queue=baselines.QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
    )
    await client.execute_update_with_start_workflow(baselines.Answering.answer, n, start_workflow_operation=operation)


if __name__ == "__main__":
    run(main(sys.argv[1]))
