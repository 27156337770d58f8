"""Every change of a lease is in its history with the old and the new value: of its dates, its name, its hosts."""

from __future__ import annotations

from domain import wire
from domain.errors import Category
from domain.invariants import VerificationReport
from domain.model import ReadQuery
from tests.patience import PATIENCE
from tests.test_leases.tenant import Tenant


async def told(tenant: Tenant, action: str, lease: str = "l1") -> list[str]:
    lines = await tenant.service.inventory.read_history(tenant.lease(lease), 1_000)
    return [line.message for line in lines if line.action == action and line.message]


async def promises_are_kept(tenant: Tenant) -> None:
    query = ReadQuery(path=tenant.lease())
    found = await tenant.asking.run_query(wire.VERIFY_ACTIVITY, query, VerificationReport, seconds=PATIENCE)
    assert found.findings == []


async def test_a_host_that_is_swapped_is_in_the_history_of_its_lease(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="+1h")
    failed = await tenant.do(tenant.host("h1"), "fail")
    assert await told(tenant, "reallocate") == ["fail of host h1: r1 lost h1, got h2"]
    assert failed.message == f"{tenant.name}/l1: r1 lost h1, got h2"
    alone = await tenant.do(tenant.host("h2"), "fail")
    assert alone.message == f"{tenant.name}/l1: r1 lost h2: no other host is left"
    back = await tenant.do(tenant.host("h1"), "recover")
    assert back.message == f"{tenant.name}/l1: r1 got h1"
    assert (await told(tenant, "reallocate"))[1:] == [
        "fail of host h2: r1 lost h2: no other host is left",
        "recover of host h1: r1 got h1",
    ]
    await promises_are_kept(tenant)


async def test_a_lease_that_keeps_its_hosts_has_no_such_line(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="+1h")
    assert (await tenant.do(tenant.host("h2"), "fail")).message == ""
    assert await told(tenant, "reallocate") == []


async def test_an_update_says_what_was_and_what_is(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="2099-01-01 09:00", end="2099-01-01 17:00")
    outcome = await tenant.do(tenant.lease(), "update", {"name": "party", "end": "2099-01-01 18:00", "hosts": 2})
    assert outcome.message == (
        "name l1 -> party; end 2099-01-01T17:00:00Z -> 2099-01-01T18:00:00Z; "
        "before_end 2099-01-01T16:00:00Z -> 2099-01-01T17:00:00Z; r1 1 -> 2 gets h2"
    )
    assert await told(tenant, "update") == [f"succeeded: {outcome.message}"]
    smaller = await tenant.do(tenant.lease(), "update", {"hosts": 1})
    assert smaller.message == "r1 2 -> 1 gives up h2"
    renamed = await tenant.do(tenant.lease(), "update", {"name": "wedding"})
    assert renamed.message == "name party -> wedding"
    await promises_are_kept(tenant)


async def test_an_empty_pool_is_no_matter_of_quota(tenant: Tenant) -> None:
    refusal = await tenant.refused(tenant.lease(), "create", {"end": "+2h", "hosts": 1, "pool": tenant.name})
    assert refusal.category is Category.NOT_FOUND
    assert refusal.hint == f"add one: starter host add {tenant.name}/h1"
    await tenant.add_hosts("h1")
    full = await tenant.refused(tenant.lease(), "create", {"end": "+2h", "hosts": 2, "pool": tenant.name})
    assert full.category is Category.QUOTA
