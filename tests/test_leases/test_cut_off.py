"""Leases whose action is cancelled, terminated or contradicted, and hosts that fail during a start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from client.actions import ActionClient
from domain.model import ActionResult
from store.schema import objects
from tests.patience import PATIENCE
from tests.test_leases.tenant import HOUR, Tenant, soon
from tests.test_store.driver import claim
from workers.service import WorkerService


async def _resizing(tenant: Tenant) -> None:
    """A lease that runs on one host, and an update that the second host holds up."""
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("ACTIVE")
    await tenant.fault("unavailable", "h2", verb="create")
    await tenant.ask(tenant.lease(), "update", {"hosts": 2, "end": "+9h", "name": "other"})
    await tenant.until_status("UPDATING")


async def test_of_an_update_that_was_cancelled_nothing_stays_and_the_lease_ends_as_it_would_have(
    tenant: Tenant,
) -> None:
    await _resizing(tenant)
    before = (await tenant.see()).end
    await tenant.asking.client.get_workflow_handle(tenant.lease()).cancel()
    seen = await tenant.until_status("ACTIVE")
    assert (seen.name, seen.end, list(seen.reservations[0].hosts)) == ("l1", before, ["h1"])
    await tenant.heal_faults()
    await tenant.at_rest()
    await tenant.create("l2", start="now", end="+1h")  # the host that was to join is free
    await tenant.forward(HOUR * 5)
    await tenant.until_status("TERMINATED")


async def test_of_an_update_that_was_terminated_nothing_stays_either(tenant: Tenant) -> None:
    await _resizing(tenant)
    handle = tenant.asking.client.get_workflow_handle(tenant.lease())
    described = await handle.describe()
    await handle.terminate()
    await tenant.service.inventory.abandon_run(tenant.lease(), str(described.run_id), soon(), "gone")
    await tenant.heal_faults()  # not earlier: the order is given again until the action is over
    seen = await tenant.see()
    assert (seen.status, seen.name, list(seen.reservations[0].hosts)) == ("ACTIVE", "l1", ["h1"])
    await tenant.forward(HOUR * 5)
    await tenant.until_status("TERMINATED")
    await tenant.at_rest()


async def test_an_end_that_is_moved_away_and_whose_update_is_cut_off_comes_as_if_nobody_had_touched_it(
    tenant: Tenant,
) -> None:
    """The clock had the new date for a while: it must not sleep past the old one."""
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="+10h", end="+12h")
    asked = claim(tenant.lease(), "update", "cut-off", soon(), spec={"start": "+30h", "end": "+40h"})
    assert (
        await tenant.service.inventory.begin_action(asked)
    ).grant  # its workflow is gone before it has done anything
    await tenant.create("l2", start="+9h", end="+50h")  # wakes the clock: it looks at all there is
    await tenant.service.inventory.abandon_run(tenant.lease(), "cut-off", soon(), "gone")
    await tenant.forward(HOUR * 11)
    await tenant.until_status("ACTIVE")


async def test_a_start_hands_over_the_host_that_the_lease_has_not_the_one_that_it_had(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.fault("unavailable", "h1", verb="create")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("STARTING")
    await tenant.do(tenant.host("h1"), "fail")
    await tenant.heal_faults()
    seen = await tenant.until_status("ACTIVE")
    assert list(seen.reservations[0].hosts) == ["h2"]
    assert not seen.degraded
    await tenant.at_rest()


# Parts that contradict their lease.


@pytest.fixture
async def spoiled(asking: ActionClient, stack: WorkerService, ns: str) -> AsyncIterator[Tenant]:
    """Somebody whose records a test may spoil: nothing is said of them at each commit."""
    someone = Tenant(asking, stack, ns)
    yield someone
    await someone.stop_clock()


async def _spoil(tenant: Tenant, part: str, status: str) -> None:
    which = objects.c.path == f"{tenant.lease()}:{part}"
    change = sa.update(objects).where(which).values(status=status) if status else sa.delete(objects).where(which)
    assert await tenant.service.database.run_transaction(lambda connection: connection.execute(change).rowcount) == 1


async def test_a_start_of_contradictory_parts_ends_in_error_and_delete_works(spoiled: Tenant) -> None:
    await spoiled.add_hosts("h1")
    await spoiled.create(start="+1h", end="+4h")
    await _spoil(spoiled, "reservation:r1", "active")
    await spoiled.forward(HOUR * 2)
    seen = await spoiled.until_status("ERROR")
    assert "its parts cannot be reconciled: a reservation is active" in seen.error
    assert (await spoiled.do(spoiled.lease(), "delete")).status == "None"
    await spoiled.at_rest()


@pytest.mark.parametrize(
    ("part", "status"),
    [("reservation:r1", "pending"), ("event:end_lease", "DONE"), ("event:end_lease", ""), ("event:start_lease", "")],
)
async def test_an_end_of_contradictory_parts_ends_in_error_however_often_and_delete_works(
    spoiled: Tenant, part: str, status: str
) -> None:
    await spoiled.add_hosts("h1")
    await spoiled.create(start="now", end="+4h")
    await spoiled.until_status("ACTIVE")
    await _spoil(spoiled, part, status)
    for _ in range(2):
        async with asyncio.timeout(PATIENCE):
            outcome = await spoiled.do(spoiled.lease(), "end")
        if outcome.result is ActionResult.SUCCEEDED:  # under ERROR a reservation that never started is simply closed
            assert (part, outcome.status) == ("reservation:r1", "TERMINATED")
        else:
            assert (outcome.result, outcome.status) == (ActionResult.FAILED, "ERROR")
            assert "its parts cannot be reconciled" in outcome.message
    assert (await spoiled.do(spoiled.lease(), "delete")).status == "None"
    await spoiled.at_rest()


@pytest.mark.parametrize("part", ["event:before_end_lease", "event:end_lease"])
async def test_an_update_of_contradictory_parts_ends_in_error_but_for_the_name(spoiled: Tenant, part: str) -> None:
    await spoiled.add_hosts("h1")
    await spoiled.create(start="+1h", end="+4h")
    await _spoil(spoiled, part, "")
    for _ in range(2):
        outcome = await spoiled.update(end="+5h")
        assert (outcome.result, outcome.status) == (ActionResult.FAILED, "ERROR")
    assert (await spoiled.do(spoiled.lease(), "update", {"name": "other"})).result is ActionResult.SUCCEEDED
    assert (await spoiled.see()).name == "other"
    assert (await spoiled.do(spoiled.lease(), "delete")).status == "None"


async def test_a_reservation_that_has_no_record_is_given_back_with_its_lease(spoiled: Tenant) -> None:
    await spoiled.add_hosts("h1")
    await spoiled.create(start="now", end="+4h")
    await spoiled.until_status("ACTIVE")
    await _spoil(spoiled, "reservation:r1", "")
    assert (await spoiled.do(spoiled.lease(), "delete")).status == "None"
    assert await spoiled.held() == {}
    await spoiled.create("l2", start="now", end="+4h")
