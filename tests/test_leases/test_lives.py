"""Whole lives of leases, on a real server whose clock is moved."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus

from domain.leases.dates import format_date
from domain.leases.tables import LEASE, LeaseStatus
from domain.model import ActionResult
from tests.patience import PATIENCE
from tests.test_leases.tenant import HOUR, Tenant, soon
from tests.test_store.driver import claim
from tests.user import User

pytestmark = pytest.mark.stores("postgres")


async def test_a_lease_is_created_started_announced_and_ended(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    assert (await tenant.create(start="+1h", end="+5h", hosts=2)).status == "PENDING"
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
    assert await tenant.told(tenant.lease()) == [
        ("create", "None", "CREATING"),
        ("create", "CREATING", "PENDING"),
        ("start", "PENDING", "STARTING"),
        ("start", "STARTING", "ACTIVE"),
        ("end", "ACTIVE", "TERMINATING"),
        ("end", "TERMINATING", "TERMINATED"),
    ]
    assert (await tenant.history(tenant.lease()))[2].requested_by == "clock"
    await tenant.at_rest()


async def test_a_lease_from_now_starts_at_once_and_the_clock_ends_with_the_last_lease(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+2h")
    await tenant.until_status("ACTIVE")
    clock = tenant.clock()
    await tenant.forward(HOUR * 3)
    await tenant.until_status("TERMINATED")
    async with asyncio.timeout(PATIENCE):
        await clock.result()
    await tenant.create("l2", start="now", end="+9h")  # and a new one begins with the next lease
    await tenant.until_status("ACTIVE", "l2")
    await tenant.at_rest()


async def test_timers_move_with_an_update_before_the_start_and_during_the_lease(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="+10h", end="+12h")
    await tenant.update(start="+2h", end="+6h")  # earlier than the clock had been set to
    await tenant.forward(HOUR * 3)
    await tenant.until_status("ACTIVE")
    await tenant.update(end="+20h")
    seen = await tenant.see()
    assert seen.events[1].due == seen.end - HOUR  # it keeps its distance
    await tenant.forward(HOUR * 10)  # long after the end that it had
    assert await tenant.status() == "ACTIVE"
    await tenant.forward(HOUR * 10)
    await tenant.until_status("TERMINATED")
    await tenant.at_rest()


async def test_an_end_that_was_announced_and_then_moved_is_announced_again(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("ACTIVE")
    await tenant.forward(HOUR * 3.5)
    await tenant.until(lambda seen: seen.events[1].status == "DONE")
    await tenant.update(end="+20h")
    assert (await tenant.see()).events[1].status == "UNDONE"
    await tenant.forward(HOUR * 16)
    await tenant.until(lambda seen: seen.events[1].status == "DONE")
    announced = [line for line in await tenant.history(tenant.event("before_end_lease")) if line.to == "DONE"]
    assert len(announced) == 2
    await tenant.do(tenant.lease(), "delete")


async def test_a_running_lease_grows_and_shrinks(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2", "h3")
    await tenant.create(start="now", end="+4h")
    await tenant.until_status("ACTIVE")
    assert (await tenant.update(hosts=3)).result is ActionResult.SUCCEEDED
    assert set(await tenant.held()) == {"h1", "h2", "h3"}
    assert (await tenant.see()).reservations[0].min == 3
    await tenant.update(hosts=2)
    assert set(await tenant.held()) == {"h1", "h2"}
    assert not (await tenant.see()).degraded
    await tenant.at_rest()
    refusal = await tenant.refused(tenant.lease(), "update", {"hosts": 9})
    assert "not enough hosts" in refusal.message
    refusal = await tenant.refused(tenant.lease(), "update", {"start": "+1h"})
    assert "its start cannot change any more" in refusal.message
    await tenant.do(tenant.lease(), "delete")


async def test_a_lease_that_cannot_grow_is_as_it_was(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="now", end="+4h")
    before = await tenant.until_status("ACTIVE")
    await tenant.fault("fail", "h2", verb="create")
    outcome = await tenant.update(hosts=2)
    assert (outcome.result, "the size cannot change: r1" in outcome.message) == (ActionResult.FAILED, True)
    assert (now := await tenant.see()) == before.model_copy(update={"error": now.error, "changed_at": now.changed_at})
    await tenant.at_rest()
    await tenant.create("l2", start="now", end="+1h")  # the host that did not join is free for others


async def test_an_end_and_a_start_that_fall_together_run_in_this_order(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    border = soon(3)
    for n, (start, end) in enumerate([(soon(1), border), (border, soon(5))] * 2):
        await tenant.create(f"l{n}", start=format_date(start), end=format_date(end))
    await tenant.forward(HOUR * 2)
    for name in ("l0", "l2"):
        await tenant.until_status("ACTIVE", name)
    await tenant.forward(HOUR * 1.5)
    for name in ("l1", "l3"):
        await tenant.until_status("ACTIVE", name)
    assert {await tenant.status(name) for name in ("l0", "l2")} == {"TERMINATED"}
    ends = [line.seq for name in ("l0", "l2") for line in await tenant.history(tenant.lease(name))][-1]
    starts = (await tenant.history(tenant.lease("l3")))[2]
    assert (starts.to, starts.seq > ends) == ("STARTING", True)
    await tenant.at_rest()


async def test_a_lease_in_the_year_2099_starts_then(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    start = datetime(2099, 6, 1, 12, tzinfo=UTC)
    await tenant.create(start="2099-06-01 12:00", end="2099-06-02 12:00")
    await tenant.forward(start - datetime.now(UTC) - HOUR)
    assert await tenant.status() == "PENDING"
    await tenant.forward(HOUR * 2)
    await tenant.until_status("ACTIVE")
    assert abs(await tenant.now() - start) < HOUR * 2
    await tenant.forward(timedelta(days=2))
    await tenant.until_status("TERMINATED")
    await tenant.at_rest()


async def test_what_starts_stays_active_what_fails_is_error_and_ending_it_releases_all(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.fault("fail", "h2", verb="create", message="the power supply is broken")
    two = [{"resource_type": "physical:host"}, {"resource_type": "physical:host"}]
    await tenant.create(start="now", end="+2h", reservations=two)
    seen = await tenant.until_status("ERROR")
    assert await tenant.statuses() == ("ERROR", ["active", "error"], ["DONE", "UNDONE", "UNDONE"])
    assert seen.reservations[1].error == "the power supply is broken"
    assert "1 of 2 reservations started: r2: the power supply is broken" in seen.error
    assert await tenant.held() == {"h1": tenant.reservation(1)}
    await tenant.forward(HOUR * 3)  # its end comes all the same
    await tenant.until_status("TERMINATED")
    assert await tenant.statuses() == ("TERMINATED", ["deleted", "deleted"], ["DONE", "UNDONE", "DONE"])
    await tenant.at_rest()


async def test_a_lease_of_which_nothing_starts_can_be_ended_by_its_owner(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.fault("fail", "h1", verb="create")
    await tenant.create(start="now", end="+2h")
    await tenant.until_status("ERROR")
    assert await tenant.statuses() == ("ERROR", ["error"], ["ERROR", "UNDONE", "UNDONE"])
    assert (await tenant.do(tenant.lease(), "end")).status == "TERMINATED"
    assert (await tenant.do(tenant.lease(), "end")).result is ActionResult.ALREADY
    await tenant.at_rest()


async def test_an_end_that_fails_is_tried_again_until_it_succeeds(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+2h")
    await tenant.until_status("ACTIVE")
    await tenant.fault("fail", tenant.reservation(), verb="terminate", times=3)
    await tenant.forward(HOUR * 3)
    await tenant.until_status("TERMINATED")
    assert await tenant.books.count_effective_orders(tenant.reservation()) == 2  # handed over once, taken back once
    await tenant.at_rest()


async def test_an_end_that_fails_for_good_is_error_holds_its_host_and_can_be_repeated(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+2h")
    await tenant.until_status("ACTIVE")
    await tenant.fault("fail", tenant.reservation(), verb="terminate", message="locked up")
    with tenant.hasty():
        outcome = await tenant.do(tenant.lease(), "end")
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "ERROR")
    assert await tenant.statuses() == ("ERROR", ["error"], ["DONE", "UNDONE", "ERROR"])
    assert await tenant.held() == {"h1": tenant.reservation()}
    assert "room for 0" in (await tenant.refused(tenant.lease("l2"), "create", _one(tenant))).message
    await tenant.heal_faults()
    assert (await tenant.do(tenant.lease(), "end")).status == "TERMINATED"
    await tenant.at_rest()


def _one(tenant: Tenant) -> dict[str, object]:
    return {"start": "now", "end": "+1h", "hosts": 1, "pool": tenant.name}


async def test_starting_twice_does_nothing_twice(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+2h")
    seen = await tenant.until_status("ACTIVE")
    refusal = await tenant.refused(tenant.lease(), "start", {"due": format_date(seen.start)})
    assert refusal.message == "start is not allowed for lease under ACTIVE"
    assert await tenant.books.count_effective_orders(tenant.reservation()) == 1


async def test_an_mci_lives_as_long_as_its_lease(tenant: Tenant, user: User) -> None:
    mci = user.mci("leased")
    vms = {"subGroups": [{"name": "a", "subGroupSize": 2, "csp": "aws", "region": "r1"}]}
    what = {"resource_type": "mci", "mci": mci, "spec": vms, "on_end": "suspend"}
    await tenant.create(start="now", end="+2h", reservations=[what])
    await tenant.until_status("ACTIVE")
    assert (await user.see(mci)).status == "Running:2 (R:2/2)"
    await tenant.forward(HOUR * 3)
    await tenant.until_status("TERMINATED")
    assert (await user.see(mci)).status == "Suspended:2 (R:0/2)"
    await tenant.create("l2", start="now", end="+9h", reservations=[what | {"on_end": "delete"}])
    await tenant.until_status("ACTIVE", "l2")  # it was resumed, not created again
    assert (await user.see(mci)).status == "Running:2 (R:2/2)"
    assert (await tenant.do(tenant.lease("l2"), "end")).status == "TERMINATED"
    assert (await tenant.service.inventory.list_objects("mci", f"ns:{user.ns}")) == []


async def test_an_mci_that_cannot_be_made_is_error_and_says_why(tenant: Tenant, user: User) -> None:
    await tenant.create(start="now", end="+2h", reservations=[{"resource_type": "mci", "mci": user.mci("no")}])
    seen = await tenant.until_status("ERROR")
    assert "no spec to create it from" in seen.reservations[0].error
    bad = {"resource_type": "mci", "mci": user.mci("bad"), "spec": {"subGroups": []}}
    await tenant.create("l2", start="now", end="+2h", reservations=[bad])
    seen = await tenant.until_status("ERROR", "l2")
    assert "the spec is not valid" in seen.reservations[0].error
    await tenant.do(tenant.lease("l2"), "delete")


async def test_a_start_whose_mci_somebody_else_cancels_has_failed(tenant: Tenant, user: User) -> None:
    mci = user.mci("held")
    vms = {"subGroups": [{"name": "a", "csp": "aws", "region": "r1"}], "option": "hold"}
    await tenant.create(start="now", end="+2h", reservations=[{"resource_type": "mci", "mci": mci, "spec": vms}])
    async with asyncio.timeout(PATIENCE):
        while (seen := await tenant.asking.try_read_progress(mci)) is None or seen.phase != "Prepared":
            await asyncio.sleep(0.05)
    start = await tenant.asking.newest_run(tenant.lease())
    assert start
    await tenant.asking.cancel_action(mci)
    outcome = await tenant.asking.wait_for_outcome(tenant.lease(), start.run_id)
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "ERROR")
    assert f"r1: {mci}: " in outcome.message
    await tenant.do(tenant.lease(), "delete")


async def test_a_start_waits_for_an_action_inside_its_mci(tenant: Tenant, user: User) -> None:
    mci = user.mci("leased")
    vms = {"subGroups": [{"name": "a", "subGroupSize": 2, "csp": "aws", "region": user.region()}]}
    await user.do(mci, "create", spec=vms)
    await user.do(mci, "suspend")
    await user.fault("hang", "a-1", verb="resume", times=1, seconds=2)
    busy = await user.admitted(user.vm("a-1", "leased"), "resume")
    what = {"resource_type": "mci", "mci": mci, "on_end": "suspend"}
    await tenant.create(start="now", end="+2h", reservations=[what])
    await tenant.until_status("ACTIVE")
    assert (await tenant.asking.wait_for_outcome(busy.path, busy.run)).result is ActionResult.SUCCEEDED
    assert (await user.see(mci)).status == "Running:2 (R:2/2)"
    await tenant.do(tenant.lease(), "delete")


# Delete, in each of the nine statuses.


async def _nothing(tenant: Tenant) -> None:
    """PENDING, with the clock waiting."""


async def _active(tenant: Tenant) -> None:
    await tenant.update(start="now")
    await tenant.until_status("ACTIVE")


async def _starting(tenant: Tenant) -> None:
    await tenant.fault("hang", "h1", verb="create", seconds=PATIENCE)
    await tenant.update(start="now")
    await tenant.until_status("STARTING")


async def _updating(tenant: Tenant) -> None:
    await _active(tenant)
    await tenant.fault("hang", "h2", verb="create", seconds=PATIENCE)
    await tenant.ask(tenant.lease(), "update", {"hosts": 2})
    await tenant.until_status("UPDATING")


async def _terminating(tenant: Tenant) -> None:
    await _active(tenant)
    await tenant.fault("hang", tenant.reservation(), verb="terminate", seconds=PATIENCE)
    await tenant.ask(tenant.lease(), "end")
    await tenant.until_status("TERMINATING")


async def _terminated(tenant: Tenant) -> None:
    await _active(tenant)
    await tenant.do(tenant.lease(), "end")


async def _deleting(tenant: Tenant) -> None:
    await _active(tenant)
    await tenant.fault("hang", tenant.reservation(), verb="terminate", seconds=PATIENCE)
    await tenant.ask(tenant.lease(), "delete")
    await tenant.until_status("DELETING")


async def _error(tenant: Tenant) -> None:
    await tenant.fault("fail", "h1", verb="create")
    with tenant.hasty():
        await tenant.update(start="now")
        await tenant.until_status("ERROR")


REACH = {
    "PENDING": _nothing,
    "STARTING": _starting,
    "ACTIVE": _active,
    "UPDATING": _updating,
    "TERMINATING": _terminating,
    "TERMINATED": _terminated,
    "DELETING": _deleting,
    "ERROR": _error,
}


@pytest.mark.parametrize("status", REACH)
async def test_delete_in_any_status_releases_everything(tenant: Tenant, status: str, released: asyncio.Event) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="+1h", end="+5h")
    with tenant.patient():
        await REACH[status](tenant)
        assert await tenant.status() == status
        ticket = await tenant.ask(tenant.lease(), "delete")
        released.set()  # not before it is admitted, or the status would pass
        await tenant.heal_faults()
        outcome = await tenant.end(ticket)
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "None")
    assert await tenant.held() == {}
    assert (await tenant.refused(tenant.lease(), "delete")).category == "not_found"
    await tenant.at_rest()
    await tenant.create("l2", start="+1h", end="+5h", hosts=2)  # all hosts are free again


async def test_delete_is_allowed_while_a_lease_is_being_created(tenant: Tenant) -> None:
    """CREATING lasts only until the clock is woken, so it is reached by hand: begun, and its worker gone."""
    await tenant.add_hosts("h1")
    spec = {"start": "+1h", "end": "+5h", "hosts": 1, "pool": tenant.name}
    assert (await tenant.service.inventory.begin_action(claim(tenant.lease(), "create", at=soon(), spec=spec))).grant
    assert await tenant.status() == "CREATING"
    assert (await tenant.do(tenant.lease(), "delete")).status == "None"
    await tenant.at_rest()


def test_these_are_all_statuses_that_there_are() -> None:
    assert {*REACH, "CREATING"} == set(LeaseStatus) == set(LEASE.statuses)


async def test_delete_can_be_repeated_until_it_succeeds(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+5h")
    await tenant.until_status("ACTIVE")
    await tenant.fault("fail", tenant.reservation(), verb="terminate", message="locked up")
    with tenant.hasty():
        outcome = await tenant.do(tenant.lease(), "delete")
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "ERROR")
    assert "not everything could be taken back: r1: locked up" in outcome.message
    await tenant.heal_faults()
    assert (await tenant.do(tenant.lease(), "delete")).status == "None"
    await tenant.at_rest()


async def test_what_delete_took_over_from_is_cancelled_and_changes_nothing_any_more(tenant: Tenant) -> None:
    await tenant.add_hosts("h1", "h2")
    await tenant.create(start="+1h", end="+5h")
    await _starting(tenant)
    run = (await tenant.asking.client.get_workflow_handle(tenant.lease()).describe()).run_id
    await tenant.do(tenant.lease(), "delete")
    left = await tenant.asking.client.get_workflow_handle(tenant.lease(), run_id=run).describe()
    assert left.status is WorkflowExecutionStatus.CONTINUED_AS_NEW
    told = await tenant.told(tenant.lease())
    assert ("start", "STARTING", "ERROR") in told
    assert told[-2:] == [("delete", "ERROR", "DELETING"), ("delete", "DELETING", "None")]
