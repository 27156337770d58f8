"""`verify` of a large store, while actions begin. Run: python3 run.py bench verify

One MCI is created by normal transactions and copied with plain SQL a thousand times. RATCHET_STORE_URL may name an
empty database to use instead of a fresh SQLite file.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.testing import ActivityEnvironment

from activities.access import Authorizer
from activities.companions import CompanionReconciler
from activities.verify import VerifyActivities
from bench.stack import memory, p95, print_comparison, print_table_head, run
from domain.mci.messages import AddVms
from domain.model import ActionEnding, ActionResult, BeginRequest, Grant, Move, ReadQuery, Request, TargetLanding
from store.engine import Database
from store.inventory import SqlInventory
from store.mci.inventory import SqlMciStore
from store.migrate import migrate_schema
from store.queries import at_or_below_condition
from store.schema import actions, history, objects
from workers.families import FAMILIES, merge_hooks

NS = "ns:bench"
SIZE = 199  # VMs of an MCI; with the MCI 200 objects
REBOOTS = 2  # of each VM
SECONDS = 20.0  # of begins before and after the verify, as the machine's load varies

_runs = count(1)


class BenchStore:
    """A store that is written without Temporal."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        migrate_schema(self.database)
        self.inventory = SqlInventory(self.database, merge_hooks(FAMILIES), Authorizer())
        self._book = SqlMciStore(self.database)

    async def create_running_mci(self, path: str, size: int) -> None:
        """Creates a running MCI."""
        spec = {"subGroups": [{"name": "g", "subGroupSize": size, "csp": "aws", "region": "r0"}]}
        grant = await self.begin(path, "create", spec)
        enrolled = await self._book.add_vms_to_action(AddVms(path=path, epoch=grant.epoch, action="create", at=_now()))
        await self.finish(grant.model_copy(update={"chunks": enrolled.chunks}))

    async def begin(self, path: str, action: str, spec: dict[str, Any] | None = None) -> Grant:
        request = Request(path=path, action=action, spec=spec)
        admission = await self.inventory.begin_action(
            BeginRequest(request=request, run=f"run-{next(_runs)}", at=_now())
        )
        assert admission.grant, admission.refusal
        return admission.grant

    async def finish(self, grant: Grant, moves: Sequence[Move] = ()) -> None:
        for chunk in grant.chunks:
            targets = await self.inventory.list_targets(chunk)
            await self.inventory.land_targets(
                chunk, [TargetLanding(target.path, "Running") for target in targets], _now()
            )
        end = {"result": ActionResult.SUCCEEDED, "at": _now(), "moves": list(moves)}
        await self.inventory.finish_action(ActionEnding(epoch=grant.epoch, run=grant.run, path=grant.path, **end))

    async def fill(self, mcis: int) -> None:
        """Creates an MCI whose VMs were rebooted, and copies of it."""
        await self.create_running_mci(f"{NS}:mci:m0", SIZE)
        for n in range(1, SIZE + 1):
            for _ in range(REBOOTS):
                await self.finish(await self.begin(f"{NS}:mci:m0:vm:g-{n}", "reboot"))
        await self.database.run_transaction(lambda connection: _copy_mci_rows(connection, mcis))


def _copy_mci_rows(connection: sa.Connection, mcis: int) -> None:
    """Copies the MCI's rows under other paths, with later epochs and history lines."""
    epochs = connection.execute(sa.select(sa.func.max(actions.c.epoch))).scalar_one()
    lines = connection.execute(sa.select(sa.func.max(history.c.seq))).scalar_one()
    shifts = {"epoch": epochs, "seq": lines}
    for n in range(1, mcis):
        for table in (objects, actions, history):
            copied = {column.name: _shift_column(column, n, shifts.get(column.name, 0)) for column in table.c}
            mine = at_or_below_condition(table.c.path, f"{NS}:mci:m0")
            connection.execute(sa.insert(table).from_select([*copied], sa.select(*copied.values()).where(mine)))
    if connection.dialect.name == "postgresql":  # its sequence does not count explicit numbers
        counter = sa.func.pg_get_serial_sequence(history.name, history.c.seq.name)
        connection.execute(sa.select(sa.func.setval(counter, sa.select(sa.func.max(history.c.seq)).scalar_subquery())))


def _shift_column(column: sa.Column[Any], n: int, by: int) -> sa.ColumnElement[Any]:
    if column.name in ("path", "parent"):
        return sa.func.replace(column, ":mci:m0", f":mci:m{n}").label(column.name)
    if column.name == "run":
        return (column + f"-{n}").label(column.name)
    return (column + by * n).label(column.name) if by else column


class AllRunsOpenService:
    """A stand-in for Temporal in which every run is open."""

    namespace = "default"

    def __init__(self) -> None:
        self.workflow_service = self

    async def describe_workflow_execution(self, *_asked: Any, **_how: Any) -> DescribeWorkflowExecutionResponse:
        found = DescribeWorkflowExecutionResponse()
        found.workflow_execution_info.status = Status.WORKFLOW_EXECUTION_STATUS_RUNNING
        return found


async def measure_begins_during(store: BenchStore, work: asyncio.Future[Any]) -> list[float]:
    """Runs begins until the work is done, each followed by its finish. Returns the seconds of each begin."""
    found = list[float]()
    while not work.done():
        began = time.perf_counter()
        grant = await store.begin(f"{NS}:mci:live:vm:g-{len(found) % 20 + 1}", "reboot")
        found.append(time.perf_counter() - began)
        await store.finish(grant)
        await asyncio.sleep(0.005)
    return found


@contextmanager
def sample_memory() -> Iterator[list[float]]:
    """Samples the megabytes of this process while the block runs; the first sample is from before."""
    samples, over = [memory()], threading.Event()

    def sample() -> None:
        while not over.wait(0.1):
            samples.append(memory())

    watch = threading.Thread(target=sample)
    watch.start()
    try:
        yield samples
    finally:
        over.set()
        watch.join()


async def main(mcis: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = BenchStore(os.environ.get("RATCHET_STORE_URL") or f"sqlite:///{Path(folder) / 'store.db'}")
        began = time.perf_counter()
        await store.fill(mcis)
        await store.create_running_mci(f"{NS}:mci:live", 20)
        print(f"filled in {time.perf_counter() - began:.0f} s", flush=True)
        await measure_verify(store)
        store.database.close()


async def measure_verify(store: BenchStore) -> None:
    """Prints the table: begins alone, begins during a verify, and a verify of one MCI."""
    client: Any = AllRunsOpenService()
    verifying = VerifyActivities(client, store.inventory, [], CompanionReconciler(client))
    await store.inventory.check_store_invariants(f"{NS}:mci:m1")  # warm
    loads = [os.getloadavg()[0]]
    alone = await measure_begins_during(store, asyncio.ensure_future(asyncio.sleep(SECONDS)))
    with sample_memory() as samples:
        began = time.perf_counter()
        work = asyncio.ensure_future(ActivityEnvironment().run(verifying.verify, ReadQuery()))
        beside = await measure_begins_during(store, work)
        took, report = time.perf_counter() - began, work.result()
    loads.append(os.getloadavg()[0])
    alone += await measure_begins_during(store, asyncio.ensure_future(asyncio.sleep(SECONDS)))
    loads.append(os.getloadavg()[0])
    began = time.perf_counter()
    one = await ActivityEnvironment().run(verifying.verify, ReadQuery(path=f"{NS}:mci:m1"))
    took_one = time.perf_counter() - began
    looked = ", ".join(f"{number:,} {what}" for what, number in report.looked_at.items() if number)
    print_table_head(f"verify of {looked}, on {store.database.engine.dialect.name}", "beside verify", "alone")
    for what, of, limit in (("median", statistics.median, "-"), ("95 of 100", p95, "<= 2")):
        a, b = of(alone) * 1e3, of(beside) * 1e3
        print_comparison(f"begin, {what}", b, a, "{:.1f} ms", limit)
    print(f"{'memory grown by':<58} {f'{max(samples) - samples[0]:.0f} MB':>14}   required: < 100 MB")
    print(f"{'verify of one MCI of 199 VMs':<58} {f'{took_one * 1e3:.0f} ms':>14}   required: < 1 s")
    print(f"{'verify of everything':<58} {f'{took:.0f} s':>14}")
    print(f"{len(beside):,} begins beside it; {len(report.findings)} findings, {len(one.findings)} in the MCI")
    print(f"load of the machine before, during and after: {', '.join(f'{load:.1f}' for load in loads)}")


def _now() -> datetime:
    return datetime.now(UTC)


if __name__ == "__main__":
    run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000))
