"""Workers that are down when an event is due, clocks that were terminated, histories that grow long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from activities.runs import is_workflow_open
from client.actions import ActionClient
from client.connection import connect_temporal
from domain import wire
from domain.healing import HealFinding, SweepOptions
from domain.invariants import InvariantViolation as Broken
from domain.invariants import VerificationReport
from domain.leases.names import pool_clock_id
from domain.leases.tables import START
from domain.model import ReadQuery
from store.leases.tables import timers
from tests.patience import PATIENCE
from tests.test_leases.tenant import HOUR, Tenant
from workers import embedded
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings


@asynccontextmanager
async def _site(home: Path) -> AsyncIterator[Tenant]:
    """A server of its own, whose worker comes and goes as the test wants."""
    server = await embedded.start_server(home)
    service = WorkerService(
        await connect_temporal(home, temporal_plugin(sandbox=True)), WorkerSettings(home=home, simulated_latency=0)
    )
    service.prepare_databases()
    try:
        asking = ActionClient(service.client)
        asking.admission_seconds = PATIENCE
        yield Tenant(asking, service, "away")
    finally:
        await service.close()
        await server.stop_server()


async def test_a_worker_that_was_away_over_the_start_and_the_end_runs_both_in_order_on_its_return(
    tmp_path: Path,
) -> None:
    async with _site(tmp_path) as tenant:
        async with tenant.service.serve_queues():
            await tenant.add_hosts("h1")
            await tenant.create("first", start="+1h", end="+3h")
            await tenant.create("second", start="+3h", end="+9h")
        skipping = asyncio.create_task(tenant.forward(HOUR * 4))  # the server's clock goes on, and nobody is there
        assert (await asyncio.wait({skipping}, timeout=1))[1], "the timer cannot have been handled"
        assert await tenant.status("first") == "PENDING"
        async with tenant.service.serve_queues():
            await skipping
            await tenant.until_status("TERMINATED", "first")
            await tenant.until_status("ACTIVE", "second")
            lines = [line for name in ("first", "second") for line in await tenant.history(tenant.lease(name))]
            told = [(line.path.rsplit(":", 1)[1], line.to) for line in sorted(lines, key=lambda line: line.seq)]
            assert told[4:] == [
                ("first", "STARTING"),
                ("first", "ACTIVE"),
                ("first", "TERMINATING"),
                ("first", "TERMINATED"),
                ("second", "STARTING"),
                ("second", "ACTIVE"),
            ]
            await tenant.at_rest()


async def test_a_clock_that_was_ended_from_outside_begins_again_with_the_next_lease(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="+1h", end="+3h")
    await tenant.stop_clock()
    await tenant.create("l2", start="now", end="+9h")
    await tenant.until_status("ACTIVE", "l2")
    await tenant.forward(HOUR * 2)
    await tenant.until_status("ACTIVE")  # the one that it had forgotten too


async def test_a_start_whose_workflow_was_killed_is_started_again_by_the_clock(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.fault("hang", "h1", verb="create", seconds=PATIENCE)
    await tenant.create(start="now", end="+9h")
    await tenant.until_status("STARTING")
    handle = tenant.asking.client.get_workflow_handle(tenant.lease())
    async with asyncio.timeout(PATIENCE):  # what is tried at once may still end when its workflow has
        while not (await handle.describe()).raw_description.pending_activities:
            await asyncio.sleep(0.02)
    await handle.terminate()
    await tenant.heal_faults()
    await tenant.until_status("ACTIVE")
    told = await tenant.told(tenant.lease())
    assert told[2:] == [
        ("start", "PENDING", "STARTING"),
        ("heal", "STARTING", "PENDING"),
        ("start", "PENDING", "STARTING"),
        ("start", "STARTING", "ACTIVE"),
    ]
    await tenant.at_rest()


async def test_a_clock_that_was_ended_from_outside_is_named_by_verify_and_started_by_a_sweep(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="+1h", end="+3h")
    assert await _broken(tenant) == []
    await tenant.stop_clock()
    [finding] = await _broken(tenant)
    assert (finding.invariant, finding.path) == ("I12", f"pool:{tenant.name}")
    report = await tenant.asking.run_sweep(SweepOptions())
    told = [(found.action, found.finding) for found in report.found if found.path == pool_clock_id(tenant.name)]
    assert told == [("lease clock", HealFinding.STARTED)]
    assert await _broken(tenant) == []
    await tenant.forward(HOUR * 4)
    await tenant.until_status("TERMINATED")


async def test_an_event_that_is_long_overdue_is_named_by_verify(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="+1h", end="+3h")
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    earlier = sa.update(timers).where(timers.c.pool == tenant.name, timers.c.name == START).values(due=long_ago)
    await tenant.service.database.run_transaction(lambda connection: connection.execute(earlier))
    [finding] = await _broken(tenant, f"project:{tenant.name}")
    assert (finding.invariant, finding.path) == ("I12", tenant.lease())
    assert "start_lease" in finding.what


async def test_a_starting_worker_starts_the_clocks_that_are_missing(tmp_path: Path) -> None:
    async with _site(tmp_path) as tenant:
        async with tenant.service.serve_queues():
            await tenant.add_hosts("h1")
            await tenant.create(start="+1h", end="+3h")
        await tenant.stop_clock()
        async with tenant.service.serve_queues():
            async with asyncio.timeout(PATIENCE):
                while not await is_workflow_open(tenant.asking.client, pool_clock_id(tenant.name)):
                    await asyncio.sleep(0.05)
            await tenant.forward(HOUR * 2)
            await tenant.until_status("ACTIVE")


async def _broken(tenant: Tenant, path: str = "") -> list[Broken]:
    query = ReadQuery(path=path or f"pool:{tenant.name}")
    return (await tenant.asking.run_query(wire.VERIFY_ACTIVITY, query, VerificationReport, seconds=PATIENCE)).findings
