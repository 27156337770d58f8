"""finish, takeover and abandon: an action ends once, whoever ends it."""

from __future__ import annotations

import pytest

from domain.limits import FAILURES_SHOWN
from domain.model import ActionResult
from store.recovery import CUT_OFF_MESSAGE
from tests.test_store.driver import FRONT_1, FRONT_2, NS, WEB, StoreDriver, group

UNANSWERED = "no clear answer from the cloud before the action ended"


async def test_an_action_ends_at_rest_with_its_locks_released(driver: StoreDriver) -> None:
    await driver.make()
    outcome = await driver.act(WEB, "suspend", "Suspended")
    assert (outcome.path, outcome.action, outcome.result) == (WEB, "suspend", ActionResult.SUCCEEDED)
    assert (outcome.status, outcome.done, outcome.failed) == ("Suspended:2 (R:0/2)", 2, 0)
    view = await driver.inventory.read_object(WEB, members=True)
    for each in (view, *view.members):
        assert (each.target_action, each.target_status, each.error) == ("None", "None", "")
    assert view.phase == "Running"
    assert await driver.inventory.list_locks() == []


async def test_a_life_is_kept_from_beginning_to_end(driver: StoreDriver) -> None:
    await driver.make()
    await driver.act(FRONT_1, "suspend", "Suspended")
    await driver.act(WEB, "terminate", "Terminated")
    assert await driver.told(FRONT_1) == [
        ("create", "None", "Creating"),
        ("create", "Creating", "Running"),
        ("suspend", "Running", "Suspending"),
        ("suspend", "Suspending", "Suspended"),
        ("terminate", "Suspended", "Terminating"),
        ("terminate", "Terminating", "Terminated"),
    ]
    assert await driver.told(WEB) == [
        ("create", "None", "Preparing"),
        ("create", "Preparing", "Prepared"),
        ("create", "Prepared", "Creating"),
        ("create", "Creating", "Running"),
        ("terminate", "Running", "Terminating"),
        ("terminate", "Terminating", "Running"),  # its VMs speak for it
    ]


async def test_a_second_finish_gives_the_first_ones_outcome_and_writes_nothing(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    await driver.land(grant, "Suspended", {FRONT_1: ("Running", "stubborn")})
    outcome = await driver.finish(grant)
    before = await driver.dump()
    assert await driver.finish(grant, ActionResult.FAILED, "told otherwise") == outcome
    assert await driver.dump() == before


async def test_a_late_second_finish_does_not_touch_the_action_that_came_after(driver: StoreDriver) -> None:
    await driver.make()
    first = await driver.grant(WEB, "suspend")
    await driver.land(first, "Suspended")
    outcome = await driver.finish(first)
    await driver.grant(WEB, "resume")
    before = await driver.dump()
    assert await driver.finish(first) == outcome
    assert await driver.dump() == before


@pytest.mark.parametrize(
    ("failing", "result", "shown"),
    [
        (0, ActionResult.SUCCEEDED, "Suspended:3 (R:0/3)"),
        (1, ActionResult.PARTIAL, "Partial-Suspended:2 (R:1/3)"),
        (2, ActionResult.PARTIAL, "Partial-Running:2 (R:2/3)"),
        (3, ActionResult.FAILED, "Running:3 (R:3/3)"),
    ],
)
async def test_the_outcome_is_counted_from_the_records(
    driver: StoreDriver, failing: int, result: ActionResult, shown: str
) -> None:
    await driver.make(WEB, group(size=3))
    grant = await driver.grant(WEB, "suspend")
    errors = {f"{WEB}:vm:front-{n + 1}": ("Running", f"stubborn {n}") for n in range(failing)}
    await driver.land(grant, "Suspended", errors)
    outcome = await driver.finish(grant, ActionResult.SUCCEEDED)
    assert (outcome.result, outcome.status) == (result, shown)
    assert (outcome.done, outcome.failed) == (3 - failing, failing)
    assert [(trouble.path, trouble.status, trouble.error) for trouble in outcome.troubles] == [
        (path, status, error) for path, (status, error) in errors.items()
    ]
    assert await driver.status(WEB) == shown


async def test_an_outcome_stays_small_however_much_went_wrong(driver: StoreDriver) -> None:
    many = FAILURES_SHOWN + 30
    grant = await driver.grant(WEB, "create", spec={"subGroups": [group(size=many)]})
    outcome = await driver.finish(grant, ActionResult.FAILED, "x" * 400)
    assert (outcome.failed, len(outcome.troubles)) == (many, FAILURES_SHOWN)
    assert max(len(trouble.error) for trouble in outcome.troubles) <= 200
    assert outcome.status == "Failed"


@pytest.mark.parametrize("result", [ActionResult.SUCCEEDED, ActionResult.FAILED, ActionResult.CANCELLED])
async def test_what_nobody_landed_has_failed_and_nothing_stays_transitional(
    driver: StoreDriver, result: ActionResult
) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    outcome = await driver.finish(grant, result, "the worker gave up")
    assert await driver.statuses() == {"front-1": "Failed", "front-2": "Failed"}
    assert outcome.result is (ActionResult.CANCELLED if result is ActionResult.CANCELLED else ActionResult.FAILED)
    assert outcome.troubles[0].error == f"{UNANSWERED}: the worker gave up"
    vm = await driver.inventory.read_object(FRONT_1)
    assert (vm.target_action, vm.target_status, vm.error) == ("None", "None", f"{UNANSWERED}: the worker gave up")
    assert (await driver.inventory.read_object(WEB)).phase == "Running"  # the MCI stays usable
    assert await driver.inventory.list_locks() == []


async def test_a_cancelled_action_keeps_what_was_done(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend")
    await driver.land(grant, "Suspended")
    outcome = await driver.finish(grant, ActionResult.CANCELLED, "by eve")
    assert (outcome.result, outcome.done, outcome.status) == (ActionResult.CANCELLED, 2, "Suspended:2 (R:0/2)")
    assert outcome.message == "by eve"


async def test_a_create_in_which_every_vm_failed_is_failed(driver: StoreDriver) -> None:
    grant = await driver.grant(WEB, "create", spec={"subGroups": [group()]})
    await driver.land(grant, "Failed", dict.fromkeys((FRONT_1, FRONT_2), ("Failed", "no room")))
    outcome = await driver.finish(grant)
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "Failed")
    assert (await driver.inventory.read_object(WEB)).phase == "Failed"
    refusal = await driver.refusal(WEB, "terminate")
    assert refusal.message == "terminate is not allowed for MCI under Failed without force"
    assert (await driver.grant(WEB, "terminate", force=True)).targets == 2


async def test_a_failed_action_on_one_vm_ends_where_the_cloud_says_it_is(driver: StoreDriver) -> None:
    await driver.make()
    await driver.act(FRONT_1, "suspend", "Suspended")
    grant = await driver.grant(FRONT_1, "resume")
    await driver.land(grant, "", {FRONT_1: ("Suspended", "no capacity")})
    outcome = await driver.finish(grant)
    assert (outcome.result, outcome.status, outcome.failed) == (ActionResult.FAILED, "Suspended", 1)
    vm = await driver.inventory.read_object(FRONT_1)
    assert (vm.status, vm.error) == ("Suspended", "no capacity")
    again = await driver.act(FRONT_1, "resume", "Running")  # a failed resume can be retried at once
    assert (again.result, (await driver.inventory.read_object(FRONT_1)).error) == (ActionResult.SUCCEEDED, "")


async def test_what_was_skipped_is_in_the_outcome(driver: StoreDriver) -> None:
    await driver.make()
    await driver.act(FRONT_1, "terminate", "Terminated")
    outcome = await driver.act(WEB, "suspend", "Suspended")
    assert (outcome.done, outcome.skipped) == (1, {"Terminated": 1})


# Takeover and abandon.


async def test_a_newer_run_of_the_same_object_takes_over_and_brings_the_members_back(driver: StoreDriver) -> None:
    await driver.make(WEB, group(size=3))
    old = await driver.grant(WEB, "suspend", run="r1")
    await driver.land(old, "Suspended", {f"{WEB}:vm:front-{n}": ("Sleepwalking", "") for n in (2, 3)})
    assert await driver.statuses() == {"front-1": "Suspended", "front-2": "Suspending", "front-3": "Suspending"}
    new = await driver.grant(WEB, "terminate", run="r2")
    assert new.epoch > old.epoch
    assert new.targets == 3
    assert {hold.run for hold in await driver.inventory.list_locks()} == {"r2"}
    history = await driver.inventory.read_history(FRONT_2)
    assert [(line.action, line.source, line.to) for line in history[-2:]] == [
        ("heal", "Suspending", "Running"),
        ("terminate", "Running", "Terminating"),
    ]
    assert (history[-2].actor, history[-2].message) == ("Controller", CUT_OFF_MESSAGE)
    assert (await driver.told(FRONT_1))[-1] == ("terminate", "Suspended", "Terminating")  # what was done stays done


async def test_the_run_that_was_taken_over_is_fenced_off(driver: StoreDriver) -> None:
    await driver.make()
    old = await driver.grant(WEB, "suspend", run="r1")
    new = await driver.grant(WEB, "reboot", run="r2")
    before = await driver.dump()
    outcome = await driver.finish(old, ActionResult.SUCCEEDED)
    assert (outcome.result, outcome.message) == (ActionResult.FAILED, f"abandoned: {CUT_OFF_MESSAGE}")
    assert outcome.status == "Running:2 (R:2/2)"  # as it was when the new one began
    assert await driver.dump() == before
    await driver.land(new, "Running")
    assert (await driver.finish(new)).result is ActionResult.SUCCEEDED


async def test_a_create_that_died_leaves_failed_vms(driver: StoreDriver) -> None:
    await driver.grant(WEB, "create", run="r1", spec={"subGroups": [group()]})
    assert await driver.inventory.abandon_run(WEB, "r1", driver.now(), "its run is gone") == 3
    view = await driver.inventory.read_object(WEB, members=True)
    assert (view.status, view.phase, view.error) == ("Failed", "Failed", "its run is gone")
    assert [vm.status for vm in view.members] == ["Failed", "Failed"]
    assert await driver.inventory.list_locks() == []


async def test_abandoning_brings_back_what_was_left_and_only_once(driver: StoreDriver) -> None:
    await driver.make()
    await driver.grant(FRONT_1, "suspend", run="r1")
    await driver.grant(FRONT_2, "suspend", run="r2")
    assert await driver.inventory.abandon_run(FRONT_1, "r1", driver.now(), "its run is gone") == 1
    assert await driver.statuses() == {"front-1": "Running", "front-2": "Suspending"}
    assert {hold.owner for hold in await driver.inventory.list_locks()} == {FRONT_2}
    vm = await driver.inventory.read_object(FRONT_1)
    assert (vm.target_action, vm.target_status, vm.error) == ("None", "None", "its run is gone")
    before = await driver.dump()
    assert await driver.inventory.abandon_run(FRONT_1, "r1", driver.now(), "again") == 0
    assert await driver.dump() == before


@pytest.mark.parametrize(("owner", "run"), [(FRONT_1, "r2"), (FRONT_2, "r1"), (WEB, "r1"), (NS, "r1")])
async def test_abandoning_somebody_else_touches_nothing(driver: StoreDriver, owner: str, run: str) -> None:
    await driver.make()
    await driver.grant(FRONT_1, "suspend", run="r1")
    before = await driver.dump()
    assert await driver.inventory.abandon_run(owner, run, driver.now(), "no") == 0
    assert await driver.dump() == before


async def test_abandoning_what_has_ended_touches_nothing(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend", run="r1")
    await driver.land(grant, "Suspended")
    await driver.finish(grant)
    await driver.grant(WEB, "resume", run="r2")
    before = await driver.dump()
    assert await driver.inventory.abandon_run(WEB, "r1", driver.now(), "late") == 0
    assert await driver.dump() == before


async def test_a_abandoned_run_that_wakes_up_writes_nothing(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend", run="r1")
    await driver.inventory.abandon_run(WEB, "r1", driver.now(), "its run is gone")
    before = await driver.dump()
    assert await driver.inventory.list_targets(grant.chunks[0]) == []
    assert await driver.land(grant, "Suspended") == 0
    outcome = await driver.finish(grant)
    assert outcome.message == "abandoned: its run is gone"
    assert await driver.dump() == before


async def test_a_very_long_reason_is_cut(driver: StoreDriver) -> None:
    await driver.make()
    await driver.grant(FRONT_1, "suspend", run="r1")
    await driver.inventory.abandon_run(FRONT_1, "r1", driver.now(), "x" * 5_000)
    assert len((await driver.inventory.read_object(FRONT_1)).error) <= 500
    assert len((await driver.last(FRONT_1)).message) <= 500
