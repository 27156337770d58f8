"""Whole lives of leases, on a real server whose clock is moved."""

from __future__ import annotations

from tests.test_leases.tenant import HOUR, Tenant


async def test_a_lease_is_created_started_announced_and_ended(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    outcome = await tenant.create(start="+1h", end="+5h", hosts=2)
    assert outcome.status == "PENDING"
    assert await tenant.statuses() == ("PENDING", ["pending"], ["UNDONE", "UNDONE", "UNDONE"])
    await tenant.forward(HOUR * 1.5)
    await tenant.until_status("ACTIVE")
    assert await tenant.statuses() == ("ACTIVE", ["active"], ["DONE", "UNDONE", "UNDONE"])
    assert await tenant.held() == {"h1": tenant.reservation(), "h2": tenant.reservation()}
    await tenant.forward(HOUR * 2.75)
    await tenant.until(lambda seen: seen.events[1].status == "DONE")
    assert await tenant.status() == "ACTIVE"
    await tenant.forward(HOUR * 2)
    await tenant.until_status("TERMINATED")
    assert await tenant.statuses() == ("TERMINATED", ["deleted"], ["DONE", "DONE", "DONE"])
    assert await tenant.held() == {}
    await tenant.at_rest()
