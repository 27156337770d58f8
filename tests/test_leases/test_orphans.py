"""Orphans at the site: hosts in the hands of reservations that no record knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.errors import Superseded
from domain.leases.capacity import ResourceSize
from domain.leases.messages import DesiredHolding
from domain.orphans import Orphan
from tests.orphans import found_and_removed, listed, refused, removed
from tests.test_leases.tenant import Tenant


async def come_late(tenant: Tenant, host: str, generation: int, lease: str = "l1") -> DesiredHolding:
    """The site hands a host over for a lease that is gone."""
    reservation = tenant.reservation(1, lease)
    holding = DesiredHolding(
        token=f"{reservation}#{generation}",
        generation=generation,
        reservation=reservation,
        version=1,
        hosts={tenant.host(host): 1},
        whole=True,
        size=ResourceSize(1, 1, 1),
    )
    await tenant.books.set_reservation_hosts(holding)
    return holding


@pytest.mark.stores("sqlite", "postgres")
async def test_a_host_that_is_handed_over_after_cancel_and_delete_is_named_listed_and_taken_back(
    tenant: Tenant,
) -> None:
    await tenant.add_hosts("h1")
    await tenant.fault("hang", tenant.reservation(), verb="create", seconds=60)
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("STARTING")
    assert (await tenant.do(tenant.lease(), "delete")).status == "None"
    await tenant.heal_faults()
    over = await tenant.service.inventory.read_last_epoch()
    holding = await come_late(tenant, "h1", over)
    orphan = await found_and_removed(tenant.asking, tenant.reservation(), "hosts", "held")
    assert (orphan.id, orphan.token, bool(orphan.since)) == (tenant.host("h1"), holding.token, True)
    assert (await removed(tenant.asking, orphan)).message == "it holds no host any more"
    assert await tenant.held() == {}
    with pytest.raises(Superseded):  # the worker that was frozen wakes, and gives its order
        await tenant.books.set_reservation_hosts(holding)
    await tenant.create("l2", start="now", end="+4h")
    await tenant.until_status("ACTIVE", "l2")


async def test_a_reservation_on_record_is_no_orphan(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("ACTIVE")
    assert await listed(tenant.asking, f"project:{tenant.name}") == []
    known = Orphan(target=tenant.reservation(), provider="hosts")
    assert await refused(tenant.asking, known) == "reservation exists already, under active"
    assert await tenant.held() == {"h1": tenant.reservation()}


async def test_all_hosts_of_a_reservation_go_with_one_removal(tenant: Tenant) -> None:
    holding = await come_late(tenant, "h1", 7)
    await tenant.books.set_reservation_hosts(replace(holding, token="another", hosts={tenant.host("h2"): 1}))
    found = await listed(tenant.asking, tenant.reservation())
    assert [orphan.id for orphan in found] == [tenant.host("h1"), tenant.host("h2")]
    assert {orphan.target for orphan in found} == {tenant.reservation()}
    ticket = await tenant.do(tenant.reservation(), "discard", {"place": "hosts"})
    assert ticket.message == "taken back: 2 hosts"
    assert await listed(tenant.asking, tenant.reservation()) == []
