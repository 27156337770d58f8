"""Statements of every action, with few rows in the store and with many. Run: python3 run.py bench rows

The baseline is the same statement, before the rows are added. RATCHET_STORE_URL names another database than a fresh
SQLite file; it must be empty.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import sqlalchemy as sa

from bench.stack import measure_seconds, print_comparison, print_table_head, run
from bench.verify import BenchStore
from domain.leases.dates import format_date
from domain.model import Move
from store.machines import hooks as machines

VMS = 100  # of each MCI
TIMES = 15
LIST_LIMIT = 20.0  # milliseconds
NOW = datetime.now(UTC)

_numbers = count(1)
Work = Callable[[], Awaitable[float]]

_OBJECT = "'Running', 'Running', 'None', 'None', {json}, "
FILL = {
    "vms": "objects SELECT {mci} || ':vm:v' || i, 'vm', {mci}, 'aws/eu-1', "
    + _OBJECT
    + "{json}, '', 1, {time}, {time}, NULL",
    "machines": "objects SELECT {space} || ':machine:m' || i, 'machine', {space}, '', 'RUNNING', 'RUNNING', 'None', "
    "'None', {machine}, {on_node}, '', 1, {time}, {time}, NULL",
    "allocations": "lease_allocations (host, ends, starts, reservation, lease, units, whole, vcpus, memory_mb, "
    "disk_gb, phase) SELECT 'pool:old:host:h' || i, {later}, {time}, {lease} || ':reservation:r1', {lease}, 1, {yes}, "
    "0, 0, 0, 'held'",
    "bookings": "lease_bookings SELECT {lease} || ':reservation:r1', {lease}, 'x' || (i / 100), 'old', 't', 1, {time}, "
    "{later}, 1, {yes}, 0, 0, 0, {json}, NULL, NULL, {no}",
    "timers": "lease_timers SELECT {lease} || ':event:end_lease', {lease}, 'old', 'end_lease', {later}",
}


def fill(connection: sa.Connection, what: str, rows: int) -> None:
    """Adds so many rows of other tenants."""
    postgres = connection.dialect.name == "postgresql"
    cast = "CAST('{}' AS {})" if postgres else "'{}'"
    words = {
        "mci": f"'ns:old:mci:m' || (i / {VMS})",
        "space": "'account:a' || (i / 100) || ':cloudspace:c'",
        "lease": "'project:x' || (i / 100) || ':lease:l' || i",
        "json": cast.format("{}", "JSONB"),
        "machine": cast.format('{"memory": 1}', "JSONB"),
        "on_node": "CAST('{\"node\": \"n' || (i / 100) || '\"}' AS JSONB)"
        if postgres
        else "'{\"node\": \"n' || (i / 100) || '\"}'",
        "time": cast.format("2025-12-31 12:00:00.000000", "TIMESTAMPTZ"),
        "later": cast.format("2036-02-01 12:00:00.000000", "TIMESTAMPTZ"),
        "yes": "true" if postgres else "1",
        "no": "false" if postgres else "0",
    }
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {rows}) SELECT"
    into, select = FILL[what].split("SELECT", 1)
    if postgres:
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    connection.exec_driver_sql(f"INSERT INTO {into} {numbers} {select} FROM n".format(**words))
    if postgres:
        connection.exec_driver_sql("ANALYZE")


class MeasuredStatements:
    """The statements that are measured, each with what it needs."""

    def __init__(self, store: BenchStore) -> None:
        self._store = store

    async def start_lease(self) -> float:
        self._lease = f"project:p:lease:l{next(_numbers)}"
        spec = {
            "start": format_date(NOW + timedelta(hours=1)),
            "end": format_date(NOW + timedelta(hours=2)),
            "hosts": 1,
        }
        await self._store.finish(await self._store.begin(self._lease, "create", {**spec, "pool": "main"}))
        done = [("reservation:r1", "active", ""), ("event:start_lease", "DONE", "start")]
        return await measure_seconds(self._run_lease_action("start", done, {"due": spec["start"]}))

    async def end_lease(self) -> float:
        """Ends the lease that was started last."""
        return await measure_seconds(
            self._run_lease_action("end", [("reservation:r1", "deleted", ""), ("event:end_lease", "DONE", "end")])
        )

    async def _run_lease_action(
        self, action: str, left: list[tuple[str, str, str]], spec: dict[str, Any] | None = None
    ) -> None:
        moves = [Move(path=f"{self._lease}:{part}", to=to, action=by) for part, to, by in left]
        await self._store.finish(await self._store.begin(self._lease, action, spec), moves)

    async def prepare(self) -> None:
        """One MCI, one node, one host."""
        await self._store.create_running_mci("ns:bench:mci:m0", VMS)
        await self._store.finish(await self._store.begin("node:n0", "create", {"memory": 1_000}))
        await self._store.finish(await self._store.begin("pool:main:host:h1", "add", {}))

    async def measure_statement_medians(self) -> dict[str, float]:
        """Milliseconds of each."""
        inventory, database = self._store.inventory, self._store.database
        check_room = partial(machines._check_node_room, name="n0", needed=1)
        works: dict[str, Work] = {
            # A row by its key: what this loses by many rows is the machine's, not the statement's.
            "control: one VM": lambda: measure_seconds(inventory.read_object("ns:bench:mci:m0:vm:g-1")),
            f"list {VMS} VMs of one MCI": lambda: measure_seconds(
                inventory.list_objects("vm", "ns:bench:mci:m0", "", VMS)
            ),
            "room of a node": lambda: measure_seconds(database.run_transaction(check_room)),
            "start of a lease": self.start_lease,
            "end of a lease": self.end_lease,
        }
        turns = [[await work() for work in works.values()] for _ in range(TIMES)]
        return {what: median(column) * 1e3 for what, column in zip(works, zip(*turns, strict=True), strict=True)}


async def main(objects: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = BenchStore(os.environ.get("RATCHET_STORE_URL") or f"sqlite:///{Path(folder) / 'store.db'}")
        rows, loads = MeasuredStatements(store), [os.getloadavg()[0]]
        await rows.prepare()
        few = await rows.measure_statement_medians()
        for what in FILL:
            await store.database.run_transaction(
                partial(fill, what=what, rows=objects if what == "vms" else objects // 10)
            )
        loads.append(os.getloadavg()[0])
        many = await rows.measure_statement_medians()
        loads.append(os.getloadavg()[0])
        title = f"{objects:,} VMs, {objects // 10:,} machines and leases, on {store.database.engine.dialect.name}"
        print_table_head(title, "many rows", "few rows")
        for what, now in many.items():
            limit = f"< {LIST_LIMIT:g} ms" if what.startswith("list") else "-" if what.startswith("control") else "<= 2"
            print_comparison(what, now, few[what], "{:.1f} ms", limit)
        print(f"load of the machine before, between and after: {', '.join(f'{load:.1f}' for load in loads)}")
        store.database.close()


if __name__ == "__main__":
    run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
