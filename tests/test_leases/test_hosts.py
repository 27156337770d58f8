"""Hosts that fail, recover and are removed while leases hold them; and what verify reports."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from domain import wire
from domain.invariants import VerificationReport
from domain.model import ReadQuery
from providers.leases.hosts import tenants
from tests.patience import PATIENCE
from tests.test_leases.tenant import HOUR, Tenant

pytestmark = pytest.mark.stores("postgres")


async def verified(tenant: Tenant) -> list[tuple[str, str]]:
    query = ReadQuery(path=f"project:{tenant.name}")
    found = await tenant.asking.run_query(wire.VERIFY_ACTIVITY, query, VerificationReport, seconds=PATIENCE)
    return [(finding.invariant, finding.what) for finding in found.findings]


async def test_a_running_lease_gets_another_host_and_the_flags_follow_the_truth(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("ACTIVE")
    assert list(await tenant.held()) == ["h1"]
    await tenant.do(tenant.host("h1"), "fail")
    seen = await tenant.see()
    assert (seen.status, list(seen.reservations[0].hosts)) == ("ACTIVE", ["h2"])
    assert (seen.degraded, seen.reservations[0].resources_changed) == (True, True)
    assert not seen.reservations[0].missing_resources
    assert list(await tenant.held()) == ["h2"]
    await tenant.do(tenant.host("h2"), "fail")
    seen = await tenant.see()
    assert (seen.degraded, seen.reservations[0].missing_resources) == (True, True)
    assert await tenant.held() == {}
    assert await verified(tenant) == []
    await tenant.do(tenant.host("h1"), "recover")
    seen = await tenant.see()
    assert list(seen.reservations[0].hosts) == ["h1"]  # the one that it began with
    assert not seen.degraded
    assert list(await tenant.held()) == ["h1"]
    assert await verified(tenant) == []


async def test_a_lease_that_misses_a_host_starts_with_those_that_it_has(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="+1h", end="+4h", hosts=2)
    await tenant.do(tenant.host("h2"), "fail")
    await tenant.forward(HOUR * 2)
    seen = await tenant.until_status("ACTIVE")
    assert seen.degraded
    assert list(await tenant.held()) == ["h1"]
    await tenant.do(tenant.host("h2"), "recover")
    assert set(await tenant.held()) == {"h1", "h2"}
    assert await verified(tenant) == []


async def test_a_lease_of_which_no_host_is_left_cannot_start(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="+1h", end="+4h")
    await tenant.do(tenant.host("h1"), "fail")
    await tenant.forward(HOUR * 2)
    seen = await tenant.until_status("ERROR")
    assert seen.reservations[0].error == "no host is left for it"


async def test_instances_are_handed_over_and_moved_too(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2", vcpus=4)
    small = {"resource_type": "virtual:instance", "min": 3, "vcpus": 1, "memory_mb": 1024}
    for name in ("l1", "l2"):
        await tenant.create(name, start="now", end="+4h", reservations=[small | {"min": 2}])
        await tenant.until_status("ACTIVE", name)
    books = {
        (tenant.host.rsplit(":", 1)[1], tenant.units)
        for tenant in await tenant.books.list_existing_objects(f"project:{tenant.name}", ("", ""))
    }
    assert books == {("h1", 2)}  # two tenants share one host
    await tenant.do(tenant.host("h1"), "fail")
    books = {
        (tenant.host.rsplit(":", 1)[1], tenant.units)
        for tenant in await tenant.books.list_existing_objects(f"project:{tenant.name}", ("", ""))
    }
    assert books == {("h2", 2)}
    assert await verified(tenant) == []


async def test_verify_finds_what_is_held_without_right_and_what_is_not_held_though_it_should_be(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("ACTIVE")
    assert await verified(tenant) == []
    mine, ours = tenants.c.reservation == tenant.reservation(), tenant.host("h1")
    gone = sa.update(tenants).where(mine).values(reservation=f"{tenant.lease('ghost')}:reservation:r1")
    await _meddle(tenant, gone)
    (orphan, missing) = await verified(tenant)
    assert missing == ("I3", f"should hold {ours}, and does not")
    assert f"is held in hosts as {ours}" in orphan[1]
    ghost = tenants.c.reservation.startswith(tenant.lease("ghost"))
    await _meddle(tenant, sa.update(tenants).where(ghost).values(reservation=tenant.reservation()))
    assert await verified(tenant) == []


async def _meddle(tenant: Tenant, change: sa.Update) -> None:
    await tenant.service.cloud_database.run_transaction(lambda connection: connection.execute(change).rowcount)
