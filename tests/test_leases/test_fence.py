"""A worker that is held up inside a hand-over until its action has ended orders nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

import pytest
from temporalio.exceptions import ApplicationError

from activities.fence import Fence
from activities.launching import start_action
from activities.leases import HostHandover
from activities.retry import ProviderRetry
from domain.leases.boundaries import START_BOUNDARY
from domain.leases.dates import format_date
from domain.leases.messages import DesiredHolding, HandOverOrder, HoldingsStore, HoldingsToReach, HostProvider
from domain.model import Grant
from store.leases import SqlLeaseSchedule
from tests.environment import activity_environment
from tests.patience import PATIENCE
from tests.test_leases.tenant import Tenant, soon
from tests.test_store.driver import claim


@dataclass
class Stop:
    """A place at which a worker stays until it is let go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def here(self) -> None:
        self.reached.set()
        await self.go_on.wait()


@dataclass
class HeldInCall:
    """The site that hands hosts over, with orders that stay on the wire for a long time."""

    hosts: HostProvider
    stop: Stop
    hands_over_at_once: bool = True

    async def set_reservation_hosts(self, holding: DesiredHolding) -> None:
        await self.stop.here()
        await self.hosts.set_reservation_hosts(holding)


@dataclass
class HeldBeforeReading:
    """An inventory, and a worker that freezes before it has asked it."""

    store: HoldingsStore
    stop: Stop

    async def read_holdings(self, order: HandOverOrder) -> list[DesiredHolding]:
        await self.stop.here()
        return await self.store.read_holdings(order)

    async def record_returned_hosts(self, holding: DesiredHolding) -> None:
        await self.store.record_returned_hosts(holding)


async def _heard() -> bool:
    return True


def _hands(tenant: Tenant, where: str, stop: Stop) -> HostHandover:
    store: HoldingsStore = SqlLeaseSchedule(tenant.service.database)
    hosts: HostProvider = tenant.books
    if where == "call":
        hosts = HeldInCall(hosts, stop)
    else:
        store = HeldBeforeReading(store, stop)
    fence, patience = Fence(tenant.service.inventory, _heard), ProviderRetry(total_seconds=PATIENCE)
    return HostHandover(store, hosts, fence, patience, partial(start_action, tenant.service.client))


async def _begun(tenant: Tenant, action: str, **spec: str) -> Grant:
    """An action whose workflow is somewhere else: only the worker that holds its orders is seen here."""
    admission = await tenant.service.inventory.begin_action(claim(tenant.lease(), action, at=soon(), spec=spec))
    assert admission.grant, admission.refusal
    return admission.grant


@pytest.mark.parametrize("where", ["call", "reading"])
async def test_a_stale_give_back_of_a_deleted_lease_does_not_take_the_hosts_of_its_successor(
    tenant: Tenant, where: str
) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("ACTIVE")
    grant, stop = await _begun(tenant, "end"), Stop()
    order = HandOverOrder(
        path=grant.path, epoch=grant.epoch, reservations=[tenant.reservation()], want=HoldingsToReach.NOTHING
    )
    stale = asyncio.create_task(activity_environment().run(_hands(tenant, where, stop).hand_over, order))
    await stop.reached.wait()
    await tenant.do(tenant.lease(), "delete")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("ACTIVE")
    stop.go_on.set()
    with pytest.raises(ApplicationError, match="no order was given"):
        await stale
    assert await tenant.held() == {"h1": tenant.reservation()}
    await tenant.at_rest()
    assert (await tenant.do(tenant.lease(), "end")).status == "TERMINATED"  # and it can be given back
    assert await tenant.held() == {}


@pytest.mark.parametrize("where", ["call", "reading"])
async def test_a_stale_start_hands_nothing_over_to_a_lease_that_is_gone(tenant: Tenant, where: str) -> None:
    """The quick try within the step that admits the start."""
    await tenant.add_hosts("h1")
    await tenant.create(start="+1h", end="+4h")
    due = (await tenant.see()).start
    grant, stop = await _begun(tenant, "start", due=format_date(due)), Stop()
    stale = asyncio.create_task(activity_environment().run(_at_once, _hands(tenant, where, stop), grant))
    await stop.reached.wait()
    await tenant.do(tenant.lease(), "delete")
    stop.go_on.set()
    await asyncio.gather(stale, return_exceptions=True)
    assert await tenant.held() == {}
    await tenant.create("l2", start="now", end="+4h")
    await tenant.until_status("ACTIVE", "l2")


async def _at_once(hands: HostHandover, grant: Grant) -> None:
    await hands.hand_over_inline(START_BOUNDARY, grant)


async def test_a_stale_growth_does_not_come_back_after_a_later_one(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2", "h3")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("ACTIVE")
    grant, stop = await _begun_update(tenant), Stop()
    order = HandOverOrder(path=grant.path, epoch=grant.epoch, reservations=grant.details["hand_over"])
    stale = asyncio.create_task(activity_environment().run(_hands(tenant, "call", stop).hand_over, order))
    await stop.reached.wait()
    await tenant.update(end="+5h")  # its workflow is gone: what it had begun is taken back
    await tenant.create("l2", start="now", end="+4h", hosts=2)
    await tenant.until_status("ACTIVE", "l2")
    stop.go_on.set()
    await asyncio.gather(stale, return_exceptions=True)
    assert (await tenant.held())["h1"] == tenant.reservation()
    await tenant.at_rest()


async def _begun_update(tenant: Tenant) -> Grant:
    asked = claim(tenant.lease(), "update", at=soon(), spec={"hosts": 2})
    admission = await tenant.service.inventory.begin_action(asked)
    assert admission.grant
    assert admission.grant.details["hand_over"]
    return admission.grant
