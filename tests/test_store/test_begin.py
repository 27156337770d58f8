"""begin: what is admitted, what is refused, and what is written in each case."""

from __future__ import annotations

from typing import Any

import pytest

from domain.errors import Category
from domain.limits import VMS_PER_CHUNK
from domain.locks import LockMode
from domain.model import ActionResult
from domain.statetable import Ruling
from tests.test_store.driver import FRONT_1, FRONT_2, NS, WEB, StoreDriver, group

SPEC = {"subGroups": [group("front", 2, "aws", "eu-1"), group("db", 1, "gcp", "asia-1")]}


async def test_create_makes_the_mci_and_its_vms_and_shows_what_is_under_way(driver: StoreDriver) -> None:
    grant = await driver.grant(WEB, "create", spec=SPEC)
    view = await driver.inventory.read_object(WEB, members=True)
    assert (view.phase, view.status) == ("Creating", "Creating:3 (R:0/3)")
    assert (view.target_action, view.target_status, view.epoch) == ("create", "Running", grant.epoch)
    assert view.spec == SPEC
    assert [(vm.path, vm.placement) for vm in view.members] == [
        (FRONT_1, "aws/eu-1"),
        (FRONT_2, "aws/eu-1"),
        (f"{WEB}:vm:db-1", "gcp/asia-1"),
    ]
    for vm in view.members:
        assert (vm.status, vm.previous_status, vm.target_action, vm.target_status) == (
            "Creating",
            "None",
            "create",
            "Running",
        )
        assert (vm.epoch, vm.info) == (grant.epoch, {"generation": grant.epoch})


async def test_a_grant_says_everything_that_the_action_needs(driver: StoreDriver) -> None:
    grant = await driver.grant(WEB, "create", spec=SPEC)
    assert (grant.path, grant.action, grant.ruling) == (WEB, "create", Ruling.GO)
    assert (grant.came_from, grant.during, grant.then) == ("None", "Preparing", "Running")
    assert grant.details == {"places": ["aws/eu-1", "gcp/asia-1"], "prepare": ["aws/eu-1", "gcp/asia-1"]}
    assert (grant.targets, grant.skipped) == (3, {})
    assert [(chunk.placement, chunk.first, chunk.last, chunk.count) for chunk in grant.chunks] == [
        ("aws/eu-1", FRONT_1, FRONT_2, 2),
        ("gcp/asia-1", f"{WEB}:vm:db-1", f"{WEB}:vm:db-1", 1),
    ]
    assert {chunk.epoch for chunk in grant.chunks} == {grant.epoch}


async def test_an_action_holds_x_on_its_path_and_ix_above(driver: StoreDriver) -> None:
    await driver.make()
    await driver.begin(FRONT_1, "suspend", run="r1")
    held = [(hold.path, hold.mode, hold.owner, hold.run, hold.action) for hold in await driver.inventory.list_locks()]
    assert held == [
        (NS, LockMode.IX, FRONT_1, "r1", "suspend"),
        (WEB, LockMode.IX, FRONT_1, "r1", "suspend"),
        (FRONT_1, LockMode.X, FRONT_1, "r1", "suspend"),
    ]


async def test_the_beginning_is_kept_with_who_asked_and_why(driver: StoreDriver) -> None:
    await driver.grant(WEB, "create", run="r1", spec=SPEC, requested_by="eve", reason="a test", request_id="q1")
    for path, during in ((WEB, "Preparing"), (FRONT_1, "Creating")):
        line = (await driver.inventory.read_history(path, limit=10))[0]
        assert (line.actor, line.action, line.source, line.to) == ("User", "create", "None", during)
        assert (line.requested_by, line.reason, line.request_id) == ("eve", "a test", "q1")
        assert (line.workflow, line.run) == (WEB, "r1")


async def test_targets_are_cut_into_chunks_that_miss_none_and_take_none_twice(driver: StoreDriver) -> None:
    many = 2 * VMS_PER_CHUNK + 1
    spec = {"subGroups": [group("a", many), group("b", 3, "gcp", "asia-1"), group("c", 4)]}
    grant = await driver.grant(WEB, "create", spec=spec)
    assert grant.targets == many + 7
    assert [(chunk.placement, chunk.count) for chunk in grant.chunks] == [
        ("aws/eu-1", VMS_PER_CHUNK),
        ("aws/eu-1", VMS_PER_CHUNK),
        ("aws/eu-1", 5),
        ("gcp/asia-1", 3),
    ]
    found = [[target.path for target in await driver.inventory.list_targets(chunk)] for chunk in grant.chunks]
    assert [len(paths) for paths in found] == [chunk.count for chunk in grant.chunks]
    assert len({path for paths in found for path in paths}) == grant.targets


# Refusals. Each leaves everything as it was.


@pytest.mark.parametrize(
    ("path", "action", "request_", "category", "message"),
    [
        (WEB, "resume", {}, Category.NOT_ALLOWED, "resume is not allowed for VM under Running (2 of them)"),
        (FRONT_1, "resume", {}, Category.NOT_ALLOWED, "resume is not allowed for VM under Running"),
        (WEB, "create", {"spec": SPEC}, Category.NOT_ALLOWED, "MCI exists already, under Running"),
        (
            WEB,
            "create",
            {"spec": SPEC, "force": True},
            Category.NOT_ALLOWED,
            "MCI exists already, under Running",
        ),
        (f"{NS}:mci:no", "suspend", {}, Category.NOT_FOUND, "there is no such MCI: ns:default:mci:no"),
        (f"{WEB}:vm:no", "suspend", {"force": True}, Category.NOT_FOUND, f"there is no such VM: {WEB}:vm:no"),
        (f"{NS}:mci:WEB", "suspend", {}, Category.NOT_FOUND, "there is no such MCI: ns:default:mci:WEB"),
        (WEB, "explode", {}, Category.INVALID, "unknown action 'explode' for MCI"),
        (WEB, "observe", {}, Category.INVALID, "unknown action 'observe' for MCI"),
        (f"{WEB}:vm:new", "create", {}, Category.INVALID, "unknown action 'create' for VM"),
        (f"{NS}:pod:x", "suspend", {}, Category.INVALID, "unknown kind 'pod'"),
        ("mci:web", "suspend", {}, Category.INVALID, "'mci:web' does not name an object of kind mci"),
        (f"{NS}:mci:new", "create", {"spec": {}}, Category.INVALID, "subGroups: Field required"),
        (WEB, "suspend", {"spec": {"a": 1}}, Category.INVALID, "suspend takes no spec"),
    ],
)
async def test_a_refused_request_changes_nothing_and_says_why(
    driver: StoreDriver, path: str, action: str, request_: dict[str, Any], category: Category, message: str
) -> None:
    await driver.make()
    before = await driver.dump()
    refusal = await driver.refusal(path, action, **request_)
    assert refusal.category is category
    assert message in refusal.message
    assert refusal.hint or "spec" in message or "subGroups" in message
    assert await driver.dump() == before


async def test_a_refusal_says_what_would_be_allowed(driver: StoreDriver) -> None:
    await driver.make()
    assert (await driver.refusal(WEB, "resume")).hint == "allowed now: suspend, reboot, terminate"
    hint = (await driver.refusal(FRONT_1, "resume")).hint
    assert hint == f"{FRONT_1} is Running; allowed now: suspend, reboot, terminate"


async def test_x_is_refused_to_those_above_and_below_and_names_the_holder(driver: StoreDriver) -> None:
    await driver.make()
    await driver.grant(WEB, "suspend", run="r1")
    before = await driver.dump()
    refusal = await driver.refusal(FRONT_1, "reboot")
    assert refusal.category is Category.CONFLICT
    told = f"409 Conflict: other action currently happening on {WEB}: suspend since 2026-01-01 12:00:04Z"
    assert refusal.message == told
    assert [(holder.owner, holder.action, holder.run) for holder in refusal.holders] == [(WEB, "suspend", "r1")]
    assert refusal.hint == f"wait for it with: starter wait {WEB}"
    assert await driver.dump() == before


async def test_a_group_is_refused_while_members_are_busy_and_names_every_one(driver: StoreDriver) -> None:
    await driver.make(WEB, group(size=12))
    busy = [f"{WEB}:vm:front-{n}" for n in (2, 3, 11)]
    for path in busy:
        await driver.grant(path, "suspend")
    before = await driver.dump()
    refusal = await driver.refusal(WEB, "terminate", force=True)
    assert [holder.owner for holder in refusal.holders] == sorted(busy)
    assert all(f"{path}: suspend since 2026-01-01 12:00:" in refusal.message for path in busy)
    assert await driver.dump() == before


async def test_siblings_run_side_by_side(driver: StoreDriver) -> None:
    await driver.make()
    one, two = await driver.grant(FRONT_1, "suspend"), await driver.grant(FRONT_2, "reboot")
    assert two.epoch > one.epoch
    assert await driver.statuses() == {"front-1": "Suspending", "front-2": "Rebooting"}


async def test_a_name_that_begins_alike_is_no_relative(driver: StoreDriver) -> None:
    await driver.make(WEB)
    await driver.make(f"{WEB}x")
    await driver.grant(WEB, "suspend")
    await driver.grant(f"{WEB}x:vm:front-1", "suspend")
    await driver.grant(f"{WEB}x:vm:front-2", "suspend")


async def test_case_twins_are_two_objects(driver: StoreDriver) -> None:
    await driver.make(WEB)
    await driver.make(f"{NS}:mci:Web")
    await driver.act(WEB, "suspend", "Suspended")
    assert await driver.status(f"{NS}:mci:Web") == "Running:2 (R:2/2)"


# Asked again.


async def test_a_retry_of_the_same_run_gets_the_same_grant_and_writes_nothing(driver: StoreDriver) -> None:
    """As after a crash between begin and its answer."""
    grant = await driver.grant(WEB, "create", run="r1", spec=SPEC)
    before = await driver.dump()
    assert await driver.grant(WEB, "create", run="r1", spec=SPEC) == grant
    assert await driver.dump() == before


async def test_a_retry_of_the_same_run_after_its_end_gets_the_same_grant(driver: StoreDriver) -> None:
    await driver.make()
    grant = await driver.grant(WEB, "suspend", run="r1")
    await driver.land(grant, "Suspended")
    await driver.finish(grant)
    before = await driver.dump()
    assert await driver.grant(WEB, "suspend", run="r1") == grant
    assert await driver.dump() == before


async def test_a_request_made_again_after_its_end_gets_the_same_outcome(driver: StoreDriver) -> None:
    await driver.make()
    outcome = await driver.act(WEB, "suspend", "Suspended", request_id="q1")
    before = await driver.dump()
    again = await driver.begin(WEB, "suspend", request_id="q1")
    assert (again.outcome, again.grant, again.refusal) == (outcome, None, None)
    assert await driver.dump() == before


async def test_a_request_id_means_something_on_its_own_object_only(driver: StoreDriver) -> None:
    await driver.make()
    await driver.act(FRONT_1, "suspend", "Suspended", request_id="q1")
    assert (await driver.begin(FRONT_2, "suspend", request_id="q1")).grant
    assert (await driver.begin(FRONT_1, "resume", request_id="q2")).grant


async def test_requests_without_an_id_are_all_different(driver: StoreDriver) -> None:
    await driver.make()
    await driver.act(WEB, "reboot", "Running")
    assert (await driver.begin(WEB, "reboot")).grant


async def test_a_retry_finds_its_own_grant_although_an_earlier_run_of_the_request_died(driver: StoreDriver) -> None:
    await driver.make()
    await driver.grant(WEB, "suspend", run="r1", request_id="q1")
    grant = await driver.grant(WEB, "suspend", run="r2", request_id="q1")
    assert await driver.grant(WEB, "suspend", run="r2", request_id="q1") == grant
    await driver.land(grant, "Suspended")
    outcome = await driver.finish(grant)
    assert (await driver.begin(WEB, "suspend", run="r3", request_id="q1")).outcome == outcome


# Nothing to do, and only some of it.


async def test_terminating_the_terminated_is_a_success_that_writes_nothing(driver: StoreDriver) -> None:
    await driver.make()
    await driver.act(WEB, "terminate", "Terminated")
    before = await driver.dump()
    for path, shown in ((WEB, "Terminated:2 (R:0/2)"), (FRONT_1, "Terminated")):
        for force in (False, True):
            grant = await driver.grant(path, "terminate", force=force)
            assert (grant.ruling, grant.then, grant.targets, grant.chunks) == (Ruling.ALREADY, shown, 0, [])
    assert await driver.dump() == before


async def test_members_whose_status_forbids_it_are_skipped_and_counted(driver: StoreDriver) -> None:
    await driver.make(WEB, group(size=5))
    for n, (action, to) in enumerate([("suspend", "Suspended"), ("terminate", "Terminated"), ("suspend", "Suspended")]):
        await driver.act(f"{WEB}:vm:front-{n + 1}", action, to)
    grant = await driver.grant(WEB, "suspend")
    assert (grant.targets, grant.skipped) == (2, {"Suspended": 2, "Terminated": 1})
    assert list((await driver.statuses()).values()) == [
        "Suspended",
        "Terminated",
        "Suspended",
        "Suspending",
        "Suspending",
    ]


async def test_a_group_in_which_nobody_may_is_refused_with_every_reason(driver: StoreDriver) -> None:
    await driver.make(WEB, group(size=3))
    await driver.act(WEB, "suspend", "Suspended")
    await driver.act(FRONT_1, "terminate", "Terminated")
    refusal = await driver.refusal(WEB, "reboot")
    assert refusal.category is Category.NOT_ALLOWED
    assert refusal.message == (
        "reboot is not allowed for VM under Suspended (2 of them); "
        "reboot is not allowed for VM under Terminated (1 of them)"
    )
    assert refusal.hint == "allowed now: resume, terminate"


async def test_force_reaches_the_failed_and_never_the_terminated(driver: StoreDriver) -> None:
    await driver.make(WEB, group(size=3))
    await driver.act(FRONT_1, "terminate", "Terminated")
    grant = await driver.grant(FRONT_2, "suspend")
    await driver.finish(grant, ActionResult.FAILED, "no answer")
    assert await driver.statuses() == {"front-1": "Terminated", "front-2": "Failed", "front-3": "Running"}
    assert (await driver.refusal(FRONT_2, "terminate")).message.endswith("under Failed without force")
    grant = await driver.grant(WEB, "suspend", force=True)
    assert (grant.targets, grant.skipped) == (2, {"Terminated": 1})
    assert await driver.statuses() == {"front-1": "Terminated", "front-2": "Suspending", "front-3": "Suspending"}


# Check: the answer of begin, and no trace of it.


@pytest.mark.parametrize(
    ("path", "action", "request_"),
    [
        (WEB, "suspend", {}),
        (WEB, "resume", {}),
        (FRONT_1, "terminate", {"force": True}),
        (f"{NS}:mci:new", "create", {"spec": SPEC}),
        (f"{NS}:mci:no", "suspend", {}),
        (WEB, "explode", {}),
    ],
)
async def test_check_answers_as_begin_would_and_changes_nothing(
    driver: StoreDriver, path: str, action: str, request_: dict[str, Any]
) -> None:
    await driver.make()
    before = await driver.dump()
    checked = await driver.check(path, action, **request_)
    assert await driver.dump() == before
    begun = await driver.begin(path, action, **request_)
    assert checked.refusal == begun.refusal
    assert (checked.grant and checked.grant.targets) == (begun.grant and begun.grant.targets)
    assert (checked.grant and checked.grant.during) == (begun.grant and begun.grant.during)


async def test_check_on_a_busy_object_names_its_own_action_and_leaves_it_alone(driver: StoreDriver) -> None:
    await driver.make()
    await driver.grant(WEB, "suspend", run="r1")
    before = await driver.dump()
    for path in (WEB, FRONT_1):
        checked = await driver.check(path, "reboot")
        assert checked.refusal
        assert checked.refusal.category is Category.CONFLICT
        assert [holder.run for holder in checked.refusal.holders] == ["r1"]
    assert (await driver.check(WEB, "terminate", force=True)).grant  # force would take over
    assert await driver.dump() == before
