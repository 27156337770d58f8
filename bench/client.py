"""A client process of its own: prints the median seconds from request to answer, ours and bare."""

from __future__ import annotations

import statistics
import sys
import time

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy

from bench import bare
from bench.rig import run, timed
from domain.model import Request
from starter.asking import Asking
from workers.plugin import plugin

PATH = "ns:bench:mci:one"
TIMES = 60


async def main(address: str) -> None:
    client = await Client.connect(address, plugins=[plugin()])
    asking = Asking(client)
    ours, theirs = [], []
    for n in range(TIMES):
        start = time.perf_counter()
        ticket = await asking.ask(Request(path=PATH, action=("suspend", "resume")[n % 2]))
        ours.append(time.perf_counter() - start)
        await asking.outcome(PATH, ticket.run)
        theirs.append(await timed(_answered(client, n)))
    sys.stdout.write(f"{statistics.median(ours)} {statistics.median(theirs)}")


async def _answered(client: Client, n: int) -> None:
    operation = WithStartWorkflowOperation(
        bare.Answering.run,
        n,
        id=f"answer-{n}",
        task_queue=bare.QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
    )
    await client.execute_update_with_start_workflow(bare.Answering.answer, n, start_workflow_operation=operation)


if __name__ == "__main__":
    run(main(sys.argv[1]))
