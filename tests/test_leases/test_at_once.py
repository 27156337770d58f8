"""Starts and ends that take no time are done in the activity of begin; everything else is as usual."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from activities import leases
from activities.dryrun import DryRunChecker
from activities.fence import Fence
from activities.inventory import ActionActivities
from activities.leases import HostHandover
from activities.retry import ProviderRetry
from domain.leases.boundaries import END_BOUNDARY, START_BOUNDARY, reservations_to_start
from domain.leases.dates import format_date
from domain.leases.messages import DesiredHolding
from domain.model import ActionResult, Admission, BeginRequest, Request
from domain.ports import WorkAtBegin
from store.leases import SqlLeaseSchedule
from tests.environment import activity_environment
from tests.patience import PATIENCE
from tests.test_leases.tenant import Tenant
from tests.test_store.driver import StoreDriver

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
LEASE = "project:p1:lease:l1"
BROKEN = "a bug of whoever hands over"


class CountingHosts:
    """The site that hands hosts over: counts its orders, and fails on request."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.broken = False
        self.hands_over_at_once = True

    async def set_reservation_hosts(self, holding: DesiredHolding) -> None:
        self.orders.append(holding.reservation)
        if self.broken:
            raise RuntimeError(BROKEN)


async def _heard() -> bool:
    return True


async def _no_host_fails(request: Request) -> None:
    raise AssertionError(request)


@dataclass
class Desk:
    driver: StoreDriver
    site: CountingHosts

    def writes(self) -> ActionActivities:
        hands = HostHandover(
            SqlLeaseSchedule(self.driver.database),
            self.site,
            Fence(self.driver.inventory, _heard),
            ProviderRetry(total_seconds=1),
            _no_host_fails,
        )
        work: dict[tuple[str, str], WorkAtBegin] = {
            ("lease", "start"): partial(hands.hand_over_inline, START_BOUNDARY),
            ("lease", "end"): partial(hands.hand_over_inline, END_BOUNDARY),
        }
        return ActionActivities(self.driver.inventory, DryRunChecker(self.driver.inventory), at_once=work)

    async def begin(self, action: str, run: str, **spec: str) -> Admission:
        request = Request(path=LEASE, action=action, spec=spec, requested_by="clock")
        asked = BeginRequest(request=request, run=run, at=START)
        return await activity_environment().run(self.writes().begin_action, asked)

    async def told(self) -> list[tuple[str, str, str]]:
        return [(line.action, line.source, line.to) for line in await self.driver.inventory.read_history(LEASE, 100)]


@pytest.fixture
async def desk(driver: StoreDriver) -> Desk:
    """A lease that is about to start."""
    host = await driver.grant("pool:main:host:h1", "add", spec={})
    await driver.finish(host)
    dates = {"start": format_date(START), "end": format_date(START + timedelta(hours=2))}
    lease = await driver.grant(LEASE, "create", spec={"hosts": 1, **dates})
    await driver.finish(lease)
    return Desk(driver, CountingHosts())


async def test_a_start_that_is_asked_for_again_after_a_crash_gives_the_same_outcome_and_writes_nothing_twice(
    desk: Desk,
) -> None:
    first = await desk.begin("start", "run", due=format_date(START))
    before = await desk.driver.dump()
    again = await desk.begin("start", "run", due=format_date(START))
    assert first == again
    assert await desk.driver.dump() == before
    assert first.outcome
    assert (first.outcome.result, first.outcome.status) == (ActionResult.SUCCEEDED, "ACTIVE")
    assert (await desk.told())[2:] == [("start", "PENDING", "STARTING"), ("start", "STARTING", "ACTIVE")]


async def test_a_start_that_breaks_is_left_to_its_workflow_and_not_to_the_retries_of_begin(desk: Desk) -> None:
    desk.site.broken = True
    admission = await desk.begin("start", "run", due=format_date(START))
    assert admission.grant
    assert admission.outcome is None
    assert (await desk.told())[2:] == [("start", "PENDING", "STARTING")]
    assert len(desk.site.orders) == 1


async def test_a_site_that_works_for_long_gets_no_order_that_would_be_cut_off_after_a_second(desk: Desk) -> None:
    desk.site.hands_over_at_once = False
    admission = await desk.begin("start", "run", due=format_date(START))
    assert admission.grant
    assert (admission.outcome, desk.site.orders) == (None, [])
    assert all(work.tried for work in reservations_to_start(admission.grant))


async def test_a_start_that_is_refused_orders_nothing(desk: Desk) -> None:
    admission = await desk.begin("start", "run", due=format_date(START + timedelta(hours=1)))
    assert admission.refusal
    assert not desk.site.orders


async def test_an_end_of_what_has_ended_orders_nothing(desk: Desk) -> None:
    await desk.begin("start", "run", due=format_date(START))
    await desk.begin("end", "run-2")
    assert len(desk.site.orders) == 2
    again = await desk.begin("end", "run-3")
    assert again.grant
    assert (again.outcome, len(desk.site.orders)) == (None, 2)


async def test_a_start_and_an_end_are_one_step_each_for_temporal(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "QUICK_TRY_SECONDS", PATIENCE)
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+2h")
    await tenant.until_status("ACTIVE")
    assert await _markers(tenant) == 1
    assert (await tenant.do(tenant.lease(), "end")).status == "TERMINATED"
    assert await _markers(tenant) == 1
    await tenant.at_rest()


async def test_what_needs_patience_is_tried_quickly_once_and_then_patiently(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.fault("unavailable", "h1", verb="create", times=1)
    await tenant.create(start="now", end="+2h")
    await tenant.until_status("ACTIVE")
    history = await tenant.asking.client.get_workflow_handle(tenant.lease()).fetch_history()
    names = [event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events]
    assert [name for name in names if name] == ["lease_hand_over"]
    assert await _markers(tenant) == 2  # begin and finish
    await tenant.at_rest()


async def _markers(tenant: Tenant) -> int:
    history = await tenant.asking.client.get_workflow_handle(tenant.lease()).fetch_history()
    return len([event for event in history.events if event.HasField("marker_recorded_event_attributes")])
