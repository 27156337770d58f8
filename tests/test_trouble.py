"""Clouds that fail, throttle, hang, lose answers or answer without sense: the outcome says exactly what happened."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from domain.model import ActionResult
from tests.patience import PATIENCE
from tests.user import User, spec
from workflows import calls

pytestmark = pytest.mark.stores("postgres")


@pytest.mark.parametrize(
    ("bad", "result"), [(1, ActionResult.PARTIAL), (3, ActionResult.PARTIAL), (5, ActionResult.PARTIAL)]
)
async def test_when_some_vms_fail_the_others_go_on_and_a_repeat_touches_only_the_failed(
    user: User, bad: int, result: ActionResult
) -> None:
    await user.do(user.mci(), "create", spec=spec(6, ["aws"]))
    for n in range(1, bad + 1):
        await user.fault("fail", vm=f"aws0-{n}", verb="suspend", message="out of order")
    outcome = await user.do(user.mci(), "suspend")
    assert (outcome.result, outcome.done, outcome.failed) == (result, 6 - bad, bad)
    expected = [(user.vm(f"aws0-{n}"), "Running", "out of order") for n in range(1, bad + 1)]
    assert [(trouble.path, trouble.status, trouble.error) for trouble in outcome.troubles] == expected
    calls = {path: vms[0].calls for path, vms in (await user.books()).items()}
    await user.heal_faults()
    again = await user.do(user.mci(), "suspend")
    assert (again.result, again.done, again.skipped) == (ActionResult.SUCCEEDED, bad, {"Suspended": 6 - bad})
    touched = {path for path, vms in (await user.books()).items() if vms[0].calls > calls[path]}
    assert touched == {user.vm(f"aws0-{n}") for n in range(1, bad + 1)}
    await user.books_agree()


async def test_when_every_vm_fails_the_action_fails_and_the_object_stays_usable(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(3, ["aws"]))
    await user.fault("fail", verb="suspend", message="maintenance")
    outcome = await user.do(user.mci(), "suspend")
    assert (outcome.result, outcome.failed, outcome.status) == (ActionResult.FAILED, 3, "Running:3 (R:3/3)")
    assert (await user.see(user.vm("aws0-1"))).error == "maintenance"
    await user.heal_faults()
    assert (await user.do(user.mci(), "suspend")).result is ActionResult.SUCCEEDED
    assert (await user.see(user.vm("aws0-1"))).error == ""


async def test_an_mci_of_which_no_vm_could_be_made_is_failed_and_only_force_ends_it(user: User) -> None:
    await user.fault("fail", verb="create", message="no capacity")
    outcome = await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "Failed")
    assert "not allowed for MCI under Failed without force" in await user.refused(user.mci(), "terminate")
    assert (await user.do(user.mci(), "terminate", force=True)).status == "Terminated:2 (R:0/2)"
    assert await user.books() == {}


@pytest.mark.parametrize("wait", [None, 0.3])
async def test_throttling_is_waited_out_and_no_vm_fails_of_it(user: User, wait: float | None) -> None:
    await user.do(user.mci(), "create", spec=spec(4, ["aws"]))
    await user.fault("throttle", verb="suspend", times=6, retry_after=wait)
    assert (await user.do(user.mci(), "suspend")).result is ActionResult.SUCCEEDED
    await user.books_agree()


async def test_a_lost_answer_to_create_makes_exactly_one_vm(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "HEARTBEAT", timedelta(seconds=PATIENCE))  # no call is made twice for want of one
    await user.fault("lose-answer", verb="create", times=3)
    assert (await user.do(user.mci(), "create", spec=spec(3, ["aws"]))).status == "Running:3 (R:3/3)"
    made = await user.books()
    assert {len(vms) for vms in made.values()} == {1}
    assert {vms[0].effects for vms in made.values()} == {1}
    assert {vms[0].calls for vms in made.values()} == {2}


@pytest.mark.parametrize("verb", ["suspend", "reboot", "terminate"])
async def test_a_lost_answer_to_a_control_call_has_one_effect(user: User, verb: str) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("lose-answer", verb=verb, times=2)
    assert (await user.do(user.mci(), verb)).result is ActionResult.SUCCEEDED
    assert {vms[0].effects for vms in (await user.books()).values()} == {2}
    await user.books_agree()


@pytest.mark.usefixtures("patient")
async def test_a_call_that_hangs_is_given_up_and_ordered_again_with_the_same_token(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("hang", verb="reboot", seconds=600, times=1)  # the stack gives a call up after 5 s
    assert (await user.do(user.mci(), "reboot")).result is ActionResult.SUCCEEDED
    assert (await user.books())[user.vm("aws0-1")][0].effects == 2


@pytest.mark.usefixtures("resigned")
async def test_a_cloud_that_stays_away_ends_in_failed_and_the_other_cloud_is_not_held_up(
    user: User, released: asyncio.Event
) -> None:
    await user.do(user.mci(), "create", spec=spec(2))
    await user.fault("hang", vm="aws*", verb="suspend")  # until the other cloud is done
    await user.fault("unavailable", vm="aws*", verb="suspend")
    await user.fault("unavailable", vm="aws*", verb="describe")
    ticket = await user.admitted(user.mci(), "suspend")
    await user.until_status(user.vm("gcp0-1"), "Suspended")
    assert (await user.see(user.vm("aws0-1"))).status == "Suspending"
    released.set()
    outcome = await user.asking.wait_for_outcome(ticket.path, ticket.run)
    assert (outcome.result, outcome.done, outcome.failed) == (ActionResult.PARTIAL, 2, 2)
    assert (await user.see(user.vm("aws0-1"))).status == "Failed"


async def test_a_vm_that_the_cloud_does_not_know_any_more_becomes_undefined(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.lose(user.vm("aws0-1"))
    outcome = await user.do(user.mci(), "suspend")
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "Undefined:1 (R:0/1)")
    assert "without force" in await user.refused(user.vm("aws0-1"), "terminate")
    assert (await user.do(user.vm("aws0-1"), "terminate", force=True)).status == "Terminated"


async def test_no_clear_answer_makes_failed_and_force_finds_the_vm_again(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("fail", verb="suspend")
    await user.fault("unknown-status", verb="describe")
    assert (await user.do(user.mci(), "suspend")).status == "Failed:1 (R:0/1)"
    await user.heal_faults()
    assert (await user.do(user.mci(), "terminate", force=True)).status == "Terminated:1 (R:0/1)"
    await user.books_agree()


@pytest.mark.usefixtures("resigned")
async def test_a_creation_that_nobody_heard_of_is_adopted_by_a_forced_terminate(user: User) -> None:
    await user.fault("lose-answer", verb="create")
    await user.fault("unavailable", verb="describe")
    assert (await user.do(user.mci(), "create", spec=spec(1, ["aws"]))).status == "Failed"
    assert (await user.books())[user.vm("aws0-1")][0].state == "running"
    await user.heal_faults()
    await user.do(user.mci(), "terminate", force=True)
    assert (await user.books())[user.vm("aws0-1")][0].state == "terminated"
