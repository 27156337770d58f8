"""Many leases at once: waiting starts block no others, and a start or an end reads only its own rows."""

from __future__ import annotations

import sqlalchemy as sa

from domain.leases.tables import START
from store.leases.schedule import PAGE_SIZE
from store.leases.tables import allocations, timers
from tests.test_leases.bookings import book, due, host, lease, moment, started
from tests.test_store.driver import StoreDriver

NOTHING = {"units": 1, "whole": True, "vcpus": 0, "memory_mb": 0, "disk_gb": 0, "phase": "held"}


async def test_those_who_wait_for_one_slow_end_hide_nobody_however_many_they_are(driver: StoreDriver) -> None:
    for name in ("h1", "h2", "h3"):
        await host(driver, name)
    await book(driver, "slow", 1, 3)
    await started(driver, "slow")
    await book(driver, "other", 2.5, 5)
    await book(driver, "behind", 3.2, 6)  # waits too
    await book(driver, "late", 3.5, 5)
    waiting = [f"{lease('w')}{n:04}" for n in range(2 * PAGE_SIZE)]
    rows = [{"host": "pool:main:host:h1", "reservation": f"{path}:reservation:r1", "lease": path} for path in waiting]
    dates = {"starts": moment(3), "ends": moment(4)}
    told = [{"event": f"{path}:event:{START}", "lease": path, "pool": "main", "name": START} for path in waiting]

    def crowd(connection: sa.Connection) -> None:
        connection.execute(sa.insert(allocations), [{**row, **dates, **NOTHING} for row in rows])
        connection.execute(sa.insert(timers), [{**each, "due": moment(3)} for each in told])

    await driver.database.run_transaction(crowd)
    assert await due(driver, 4) == [
        ("slow", "before_end_lease"),
        ("other", "start_lease"),
        ("late", "start_lease"),
    ]
