"""Workers that are away when something is due, clocks that were ended from outside, histories that grow long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starter.asking import Asking
from tests.test_leases.tenant import HOUR, Tenant
from workers import embedded
from workers.connection import connect
from workers.plugin import plugin
from workers.service import Service
from workers.settings import Settings


@asynccontextmanager
async def _site(home: Path) -> AsyncIterator[Tenant]:
    """A server of its own, whose worker comes and goes as the test wants."""
    server = await embedded.start(home)
    service = Service(await connect(home, plugin(sandbox=True)), Settings(home=home, simulated_latency=0))
    service.prepare()
    try:
        yield Tenant(Asking(service.client), service, "away")
    finally:
        await service.close()
        await server.stop()


async def test_a_worker_that_was_away_over_the_start_and_the_end_runs_both_in_order_on_its_return(
    tmp_path: Path,
) -> None:
    async with _site(tmp_path) as tenant:
        async with tenant.service.serve():
            await tenant.add_hosts("h1")
            await tenant.create("first", start="+1h", end="+3h")
            await tenant.create("second", start="+3h", end="+9h")
        skipping = asyncio.create_task(tenant.forward(HOUR * 4))  # the server's clock goes on, and nobody is there
        assert (await asyncio.wait({skipping}, timeout=1))[1], "the timer cannot have been handled"
        assert await tenant.status("first") == "PENDING"
        async with tenant.service.serve():
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
    await tenant.fault("hang", "h1", verb="create", seconds=20, times=2)
    await tenant.create(start="now", end="+9h")
    await tenant.until_status("STARTING")
    await tenant.asking.client.get_workflow_handle(tenant.lease()).terminate()
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
