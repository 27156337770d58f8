"""finish, take-over and burial: an action ends once, whoever ends it."""

from __future__ import annotations

import pytest

from domain.limits import FAILURES_SHOWN
from domain.model import Result
from store.takeover import CUT_OFF
from tests.test_store.scene import FRONT_1, FRONT_2, NS, WEB, Scene, group

UNANSWERED = "no clear answer from the cloud before the action ended"


async def test_an_action_ends_at_rest_with_its_locks_released(scene: Scene) -> None:
    await scene.make()
    outcome = await scene.act(WEB, "suspend", "Suspended")
    assert (outcome.path, outcome.action, outcome.result) == (WEB, "suspend", Result.SUCCEEDED)
    assert (outcome.status, outcome.done, outcome.failed) == ("Suspended:2 (R:0/2)", 2, 0)
    view = await scene.inventory.get(WEB, members=True)
    for each in (view, *view.members):
        assert (each.target_action, each.target_status, each.error) == ("None", "None", "")
    assert view.phase == "Running"
    assert await scene.inventory.holds() == []


async def test_a_life_is_kept_from_beginning_to_end(scene: Scene) -> None:
    await scene.make()
    await scene.act(FRONT_1, "suspend", "Suspended")
    await scene.act(WEB, "terminate", "Terminated")
    assert await scene.told(FRONT_1) == [
        ("create", "None", "Creating"),
        ("create", "Creating", "Running"),
        ("suspend", "Running", "Suspending"),
        ("suspend", "Suspending", "Suspended"),
        ("terminate", "Suspended", "Terminating"),
        ("terminate", "Terminating", "Terminated"),
    ]
    assert await scene.told(WEB) == [
        ("create", "None", "Preparing"),
        ("create", "Preparing", "Prepared"),
        ("create", "Prepared", "Creating"),
        ("create", "Creating", "Running"),
        ("terminate", "Running", "Terminating"),
        ("terminate", "Terminating", "Running"),  # its VMs speak for it
    ]


async def test_a_second_finish_gives_the_first_ones_outcome_and_writes_nothing(scene: Scene) -> None:
    await scene.make()
    grant = await scene.grant(WEB, "suspend")
    await scene.land(grant, "Suspended", {FRONT_1: ("Running", "stubborn")})
    outcome = await scene.finish(grant)
    before = await scene.dump()
    assert await scene.finish(grant, Result.FAILED, "told otherwise") == outcome
    assert await scene.dump() == before


async def test_a_late_second_finish_does_not_touch_the_action_that_came_after(scene: Scene) -> None:
    await scene.make()
    first = await scene.grant(WEB, "suspend")
    await scene.land(first, "Suspended")
    outcome = await scene.finish(first)
    await scene.grant(WEB, "resume")
    before = await scene.dump()
    assert await scene.finish(first) == outcome
    assert await scene.dump() == before


@pytest.mark.parametrize(
    ("failing", "result", "shown"),
    [
        (0, Result.SUCCEEDED, "Suspended:3 (R:0/3)"),
        (1, Result.PARTIAL, "Partial-Suspended:2 (R:1/3)"),
        (2, Result.PARTIAL, "Partial-Running:2 (R:2/3)"),
        (3, Result.FAILED, "Running:3 (R:3/3)"),
    ],
)
async def test_the_outcome_is_counted_from_the_records(scene: Scene, failing: int, result: Result, shown: str) -> None:
    await scene.make(WEB, group(size=3))
    grant = await scene.grant(WEB, "suspend")
    errors = {f"{WEB}:vm:front-{n + 1}": ("Running", f"stubborn {n}") for n in range(failing)}
    await scene.land(grant, "Suspended", errors)
    outcome = await scene.finish(grant, Result.SUCCEEDED)
    assert (outcome.result, outcome.status) == (result, shown)
    assert (outcome.done, outcome.failed) == (3 - failing, failing)
    assert [(trouble.path, trouble.status, trouble.error) for trouble in outcome.troubles] == [
        (path, status, error) for path, (status, error) in errors.items()
    ]
    assert await scene.status(WEB) == shown


async def test_an_outcome_stays_small_however_much_went_wrong(scene: Scene) -> None:
    many = FAILURES_SHOWN + 30
    grant = await scene.grant(WEB, "create", spec={"subGroups": [group(size=many)]})
    outcome = await scene.finish(grant, Result.FAILED, "x" * 400)
    assert (outcome.failed, len(outcome.troubles)) == (many, FAILURES_SHOWN)
    assert max(len(trouble.error) for trouble in outcome.troubles) <= 200
    assert outcome.status == "Failed"


@pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED, Result.CANCELLED])
async def test_what_nobody_landed_has_failed_and_nothing_stays_transitional(scene: Scene, result: Result) -> None:
    await scene.make()
    grant = await scene.grant(WEB, "suspend")
    outcome = await scene.finish(grant, result, "the worker gave up")
    assert await scene.statuses() == {"front-1": "Failed", "front-2": "Failed"}
    assert outcome.result is (Result.CANCELLED if result is Result.CANCELLED else Result.FAILED)
    assert outcome.troubles[0].error == f"{UNANSWERED}: the worker gave up"
    vm = await scene.inventory.get(FRONT_1)
    assert (vm.target_action, vm.target_status, vm.error) == ("None", "None", f"{UNANSWERED}: the worker gave up")
    assert (await scene.inventory.get(WEB)).phase == "Running"  # the MCI stays usable
    assert await scene.inventory.holds() == []


async def test_a_cancelled_action_keeps_what_was_done(scene: Scene) -> None:
    await scene.make()
    grant = await scene.grant(WEB, "suspend")
    await scene.land(grant, "Suspended")
    outcome = await scene.finish(grant, Result.CANCELLED, "by eve")
    assert (outcome.result, outcome.done, outcome.status) == (Result.CANCELLED, 2, "Suspended:2 (R:0/2)")
    assert outcome.message == "by eve"


async def test_a_create_in_which_every_vm_failed_is_failed(scene: Scene) -> None:
    grant = await scene.grant(WEB, "create", spec={"subGroups": [group()]})
    await scene.land(grant, "Failed", dict.fromkeys((FRONT_1, FRONT_2), ("Failed", "no room")))
    outcome = await scene.finish(grant)
    assert (outcome.result, outcome.status) == (Result.FAILED, "Failed")
    assert (await scene.inventory.get(WEB)).phase == "Failed"
    refusal = await scene.refusal(WEB, "terminate")
    assert refusal.message == "terminate is not allowed for MCI under Failed without force"
    assert (await scene.grant(WEB, "terminate", force=True)).targets == 2


async def test_a_failed_action_on_one_vm_ends_where_the_cloud_says_it_is(scene: Scene) -> None:
    await scene.make()
    await scene.act(FRONT_1, "suspend", "Suspended")
    grant = await scene.grant(FRONT_1, "resume")
    await scene.land(grant, "", {FRONT_1: ("Suspended", "no capacity")})
    outcome = await scene.finish(grant)
    assert (outcome.result, outcome.status, outcome.failed) == (Result.FAILED, "Suspended", 1)
    vm = await scene.inventory.get(FRONT_1)
    assert (vm.status, vm.error) == ("Suspended", "no capacity")
    again = await scene.act(FRONT_1, "resume", "Running")  # a failed resume can be retried at once
    assert (again.result, (await scene.inventory.get(FRONT_1)).error) == (Result.SUCCEEDED, "")


async def test_what_was_skipped_is_in_the_outcome(scene: Scene) -> None:
    await scene.make()
    await scene.act(FRONT_1, "terminate", "Terminated")
    outcome = await scene.act(WEB, "suspend", "Suspended")
    assert (outcome.done, outcome.skipped) == (1, {"Terminated": 1})


# Take-over and burial.


async def test_a_newer_run_of_the_same_object_takes_over_and_brings_the_members_back(scene: Scene) -> None:
    await scene.make(WEB, group(size=3))
    old = await scene.grant(WEB, "suspend", run="r1")
    await scene.land(old, "Suspended", {f"{WEB}:vm:front-{n}": ("Sleepwalking", "") for n in (2, 3)})
    assert await scene.statuses() == {"front-1": "Suspended", "front-2": "Suspending", "front-3": "Suspending"}
    new = await scene.grant(WEB, "terminate", run="r2")
    assert new.epoch > old.epoch
    assert new.targets == 3
    assert {hold.run for hold in await scene.inventory.holds()} == {"r2"}
    history = await scene.inventory.history(FRONT_2)
    assert [(line.action, line.source, line.to) for line in history[-2:]] == [
        ("heal", "Suspending", "Running"),
        ("terminate", "Running", "Terminating"),
    ]
    assert (history[-2].actor, history[-2].message) == ("Controller", CUT_OFF)
    assert (await scene.told(FRONT_1))[-1] == ("terminate", "Suspended", "Terminating")  # what was done stays done


async def test_the_run_that_was_taken_over_is_fenced_off(scene: Scene) -> None:
    await scene.make()
    old = await scene.grant(WEB, "suspend", run="r1")
    new = await scene.grant(WEB, "reboot", run="r2")
    before = await scene.dump()
    outcome = await scene.finish(old, Result.SUCCEEDED)
    assert (outcome.result, outcome.message) == (Result.FAILED, f"abandoned: {CUT_OFF}")
    assert outcome.status == "Running:2 (R:2/2)"  # as it was when the new one began
    assert await scene.dump() == before
    await scene.land(new, "Running")
    assert (await scene.finish(new)).result is Result.SUCCEEDED


async def test_a_create_that_died_leaves_failed_vms(scene: Scene) -> None:
    await scene.grant(WEB, "create", run="r1", spec={"subGroups": [group()]})
    assert await scene.inventory.bury(WEB, "r1", scene.now(), "its run is gone") == 3
    view = await scene.inventory.get(WEB, members=True)
    assert (view.status, view.phase, view.error) == ("Failed", "Failed", "its run is gone")
    assert [vm.status for vm in view.members] == ["Failed", "Failed"]
    assert await scene.inventory.holds() == []


async def test_burying_brings_back_what_was_left_and_only_once(scene: Scene) -> None:
    await scene.make()
    await scene.grant(FRONT_1, "suspend", run="r1")
    await scene.grant(FRONT_2, "suspend", run="r2")
    assert await scene.inventory.bury(FRONT_1, "r1", scene.now(), "its run is gone") == 1
    assert await scene.statuses() == {"front-1": "Running", "front-2": "Suspending"}
    assert {hold.owner for hold in await scene.inventory.holds()} == {FRONT_2}
    vm = await scene.inventory.get(FRONT_1)
    assert (vm.target_action, vm.target_status, vm.error) == ("None", "None", "its run is gone")
    before = await scene.dump()
    assert await scene.inventory.bury(FRONT_1, "r1", scene.now(), "again") == 0
    assert await scene.dump() == before


@pytest.mark.parametrize(("owner", "run"), [(FRONT_1, "r2"), (FRONT_2, "r1"), (WEB, "r1"), (NS, "r1")])
async def test_burying_somebody_else_touches_nothing(scene: Scene, owner: str, run: str) -> None:
    await scene.make()
    await scene.grant(FRONT_1, "suspend", run="r1")
    before = await scene.dump()
    assert await scene.inventory.bury(owner, run, scene.now(), "no") == 0
    assert await scene.dump() == before


async def test_burying_what_has_ended_touches_nothing(scene: Scene) -> None:
    await scene.make()
    grant = await scene.grant(WEB, "suspend", run="r1")
    await scene.land(grant, "Suspended")
    await scene.finish(grant)
    await scene.grant(WEB, "resume", run="r2")
    before = await scene.dump()
    assert await scene.inventory.bury(WEB, "r1", scene.now(), "late") == 0
    assert await scene.dump() == before


async def test_a_buried_run_that_wakes_up_writes_nothing(scene: Scene) -> None:
    await scene.make()
    grant = await scene.grant(WEB, "suspend", run="r1")
    await scene.inventory.bury(WEB, "r1", scene.now(), "its run is gone")
    before = await scene.dump()
    assert await scene.inventory.targets(grant.chunks[0]) == []
    assert await scene.land(grant, "Suspended") == 0
    outcome = await scene.finish(grant)
    assert outcome.message == "abandoned: its run is gone"
    assert await scene.dump() == before


async def test_a_very_long_reason_is_cut(scene: Scene) -> None:
    await scene.make()
    await scene.grant(FRONT_1, "suspend", run="r1")
    await scene.inventory.bury(FRONT_1, "r1", scene.now(), "x" * 5_000)
    assert len((await scene.inventory.get(FRONT_1)).error) <= 500
    assert len((await scene.last(FRONT_1)).message) <= 500
