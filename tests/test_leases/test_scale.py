"""Many leases at once: nobody is hidden behind those who wait, and a start or an end reads only what is its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import sqlalchemy as sa

from domain.leases.tables import START
from domain.leases.views import Want
from store.leases.schedule import PAGE
from store.leases.tables import allocations, timers
from tests.test_leases.books import book, change, due, finish, gone, holdings, host, lease, moment, over, started
from tests.test_store.scene import Scene

NOTHING = {"units": 1, "whole": True, "vcpus": 0, "memory_mb": 0, "disk_gb": 0, "phase": "held"}


async def test_those_who_wait_for_one_slow_end_hide_nobody_however_many_they_are(scene: Scene) -> None:
    for name in ("h1", "h2", "h3"):
        await host(scene, name)
    await book(scene, "slow", 1, 3)
    await started(scene, "slow")
    await book(scene, "other", 2.5, 5)
    await book(scene, "behind", 3.2, 6)  # waits too
    await book(scene, "late", 3.5, 5)
    waiting = [f"{lease('w')}{n:04}" for n in range(2 * PAGE)]
    rows = [{"host": "pool:main:host:h1", "reservation": f"{path}:reservation:r1", "lease": path} for path in waiting]
    dates = {"starts": moment(3), "ends": moment(4)}
    told = [{"event": f"{path}:event:{START}", "lease": path, "pool": "main", "name": START} for path in waiting]

    def crowd(connection: sa.Connection) -> None:
        connection.execute(sa.insert(allocations), [{**row, **dates, **NOTHING} for row in rows])
        connection.execute(sa.insert(timers), [{**each, "due": moment(3)} for each in told])

    await scene.database.run(crowd)
    assert await due(scene, 4) == [
        ("slow", "before_end_lease"),
        ("other", "start_lease"),
        ("late", "start_lease"),
    ]


class Plans:
    """What the database says of how it would run each statement that was run."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, Any]] = []

    @contextmanager
    def noted(self, engine: sa.Engine) -> Iterator[None]:
        def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
            self.statements.append((statement, parameters[0] if many else parameters))

        sa.event.listen(engine, "before_cursor_execute", note)
        yield
        sa.event.remove(engine, "before_cursor_execute", note)

    def scans(self, connection: sa.Connection, table: str) -> list[str]:
        """Statements that would read all of a table; PostgreSQL does with a small one, unless told otherwise."""
        sqlite = connection.dialect.name == "sqlite"
        if not sqlite:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        explain, word = ("EXPLAIN QUERY PLAN", f"SCAN {table}") if sqlite else ("EXPLAIN", f"Seq Scan on {table}")
        mine = [each for each in self.statements if table in each[0] and not each[0].startswith("INSERT")]
        assert mine
        plans = [(text, connection.exec_driver_sql(f"{explain} {text}", given).all()) for text, given in mine]
        return [f"{text}: {plan}" for text, plan in plans if any(word in str(line) for line in plan)]


async def test_a_start_and_an_end_read_no_table_of_their_family_from_its_first_line_to_its_last(scene: Scene) -> None:
    for name in ("h1", "h2", "h3"):
        await host(scene, name)
    plans = Plans()
    with plans.noted(scene.database.engine):
        await book(scene, "a", 1, 3)
        await due(scene, 1)
        await holdings(scene, Want.ALL)
        await started(scene, "a")
        await change(scene, "a", hosts=2)
        await holdings(scene, Want.NOTHING)
        await over(scene, "a")
        await finish(scene, await scene.grant(lease("a"), "delete"), moves=gone("a"))
    for table in ("lease_allocations", "lease_bookings", "lease_timers"):
        found = await scene.database.run(partial(plans.scans, table=table))
        assert not found, found[0]
