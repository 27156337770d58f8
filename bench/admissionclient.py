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
            for name, bare in (("bare", baselines.Answering), ("floor", baselines.SameSteps)):
                update = run_bare_update(client, bare, f"{name}-{bare_id}")
                times.setdefault(f"{name} {which}", []).append(await measure_seconds(update))
                await client.get_workflow_handle(f"{name}-{bare_id}").result()
    sys.stdout.write(json.dumps({name: statistics.median(each) for name, each in times.items()}))


async def run_bare_update(client: Client, bare: type[baselines.Answering | baselines.SameSteps], name: str) -> None:
    operation = WithStartWorkflowOperation(
        bare.run, 1, id=name, task_queue=baselines.QUEUE, id_conflict_policy=WorkflowIDConflictPolicy.FAIL
    )
    await client.execute_update_with_start_workflow(bare.answer, 1, start_workflow_operation=operation)


if __name__ == "__main__":
    run(main(sys.argv[1]))
