"""An action from the request to the outcome, on a real server: what the kernel does for every family."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.converter import decode_typed_search_attributes
from temporalio.exceptions import ApplicationError

from domain import wire
from domain.errors import Category
from domain.limits import CAPS_BY_CLOUD
from domain.model import ActionResult
from tests.patience import progress_of
from tests.user import User, spec
from workflows.action import shield_from_cancel

pytestmark = pytest.mark.stores("sqlite", "postgres")


async def test_an_action_goes_from_request_to_outcome_and_leaves_everything_at_rest(user: User) -> None:
    outcome = await user.do(user.mci(), "create", spec=spec())
    assert (outcome.result, outcome.status, outcome.done) == (ActionResult.SUCCEEDED, "Running:4 (R:4/4)", 4)
    await user.books_agree()
    for action, status in [
        ("suspend", "Suspended:4 (R:0/4)"),
        ("resume", "Running:4 (R:4/4)"),
        ("reboot", "Running:4 (R:4/4)"),
        ("terminate", "Terminated:4 (R:0/4)"),
    ]:
        assert (await user.do(user.mci(), action)).status == status
        await user.books_agree()


async def test_an_action_on_one_vm_leaves_the_others_alone(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec())
    outcome = await user.do(user.vm("aws0-1"), "suspend")
    assert outcome.status == "Suspended"
    assert (await user.see(user.mci())).status == "Partial-Running:3 (R:3/4)"


async def test_every_change_is_kept_with_who_asked_and_which_run(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    ticket = await user.admitted(user.vm("aws0-1"), "suspend", reason="night", request_id="r-17")
    await user.asking.wait_for_outcome(ticket.path, ticket.run)
    lines = [(line.actor, line.action, line.source, line.to) for line in await user.history(user.vm("aws0-1"))]
    assert lines == [
        ("User", "create", "None", "Creating"),
        ("Cloud", "create", "Creating", "Running"),
        ("User", "suspend", "Running", "Suspending"),
        ("Cloud", "suspend", "Suspending", "Suspended"),
    ]
    last = (await user.history(user.vm("aws0-1")))[-1]
    assert (last.requested_by, last.reason, last.request_id) == ("tester", "night", "r-17")
    assert (last.workflow, last.run) == (user.vm("aws0-1"), ticket.run)


async def test_a_refused_request_closes_as_refused_and_changes_nothing(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    before = await user.see(user.mci())
    ticket = await user.ask(user.vm("aws0-1"), "resume")
    assert ticket.admission.refusal
    assert ticket.admission.refusal.message == "resume is not allowed for VM under Running"
    assert "allowed now: suspend, reboot, terminate" in ticket.admission.refusal.hint
    with pytest.raises(WorkflowFailureError) as failure:
        await user.asking.client.get_workflow_handle(ticket.path, run_id=ticket.run).result()
    assert isinstance(failure.value.cause, ApplicationError)
    assert failure.value.cause.type == wire.REFUSED_ERROR_TYPE
    assert await user.see(user.mci()) == before


async def test_terminating_what_is_terminated_succeeds_and_does_nothing(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.do(user.mci(), "terminate")
    calls = (await user.books())[user.vm("aws0-1")][0].calls
    again = await user.do(user.mci(), "terminate")
    assert (again.result, again.status) == (ActionResult.ALREADY, "Terminated:1 (R:0/1)")
    assert (await user.books())[user.vm("aws0-1")][0].calls == calls


async def test_an_object_that_exists_cannot_be_created_and_one_that_does_not_cannot_be_changed(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    assert await user.refused(user.mci(), "create", spec=spec()) == "MCI exists already, under Running:1 (R:1/1)"
    ticket = await user.ask(user.mci("ghost"), "suspend")
    assert ticket.admission.refusal
    assert ticket.admission.refusal.category is Category.NOT_FOUND
    assert ticket.admission.refusal.message == f"there is no such MCI: {user.mci('ghost')}"


async def test_a_second_request_on_a_busy_object_gets_409_naming_the_first(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("throttle", verb="suspend")
    first = await user.admitted(user.mci(), "suspend")
    message = await user.refused(user.mci(), "terminate")
    await user.heal_faults()
    assert message.startswith(f"409 Conflict: other action currently happening on {user.mci()}: suspend since ")
    assert (await user.asking.wait_for_outcome(first.path, first.run)).result is ActionResult.SUCCEEDED


async def test_a_child_conflicts_with_its_parent_and_the_parent_with_its_child(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec())
    await user.fault("throttle", verb="suspend")
    child = await user.admitted(user.vm("aws0-1"), "suspend")
    assert f"on {user.vm('aws0-1')}: suspend since" in await user.refused(user.mci(), "terminate")
    await user.heal_faults()
    await user.asking.wait_for_outcome(child.path, child.run)
    await user.fault("throttle", verb="suspend")
    parent = await user.admitted(user.mci(), "suspend")
    assert f"on {user.mci()}: suspend since" in await user.refused(user.vm("gcp0-1"), "suspend")
    await user.heal_faults()
    await user.asking.wait_for_outcome(parent.path, parent.run)
    await user.books_agree()


async def test_siblings_act_side_by_side(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(3, ["aws"]))
    await user.fault("throttle", verb="suspend")
    tickets = [await user.admitted(user.vm(f"aws0-{n}"), "suspend") for n in (1, 2, 3)]  # the first is still throttled
    held = {hold.owner for hold in await user.service.inventory.list_locks(user.mci())}
    await user.heal_faults()
    assert held == {ticket.path for ticket in tickets}
    for ticket in tickets:
        await user.asking.wait_for_outcome(ticket.path, ticket.run)


async def test_of_100_racing_requests_one_is_admitted_and_the_rest_get_409(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("throttle", verb="reboot")
    tickets = await asyncio.gather(*(user.ask(user.mci(), "reboot") for _ in range(100)))
    await user.heal_faults()
    admitted = [ticket for ticket in tickets if ticket.admission.grant]
    refused = [ticket.admission.refusal for ticket in tickets if ticket.admission.refusal]
    assert (len(admitted), len(refused)) == (1, 99)
    assert {refusal.category for refusal in refused} == {Category.CONFLICT}
    assert all("reboot since" in refusal.message for refusal in refused)
    await user.asking.wait_for_outcome(admitted[0].path, admitted[0].run)
    assert (await user.books())[user.vm("aws0-1")][0].effects == 2  # created, and rebooted once


async def test_the_same_request_id_is_the_same_action_while_it_runs_and_after(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("throttle", verb="reboot")
    first = await user.admitted(user.mci(), "reboot", request_id="once")
    second = await user.admitted(user.mci(), "reboot", request_id="once")
    await user.heal_faults()
    assert second.run == first.run
    outcome = await user.asking.wait_for_outcome(first.path, first.run)
    assert await user.do(user.mci(), "reboot", request_id="once") == outcome
    assert (await user.books())[user.vm("aws0-1")][0].effects == 2


async def test_a_cancelled_action_ends_with_the_truth_about_each_vm(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("hang", vm="aws0-2", seconds=30, verb="suspend")
    ticket = await user.admitted(user.mci(), "suspend")
    await user.until_status(user.vm("aws0-1"), "Suspended")
    await user.asking.cancel_action(user.mci())
    outcome = await user.asking.wait_for_outcome(ticket.path, ticket.run)
    assert (outcome.result, outcome.action, outcome.done, outcome.failed) == (ActionResult.CANCELLED, "suspend", 1, 1)
    await user.heal_faults()
    await user.books_agree()
    described = await user.asking.newest_run(user.mci())
    assert described
    assert described.status is WorkflowExecutionStatus.CANCELED
    assert (await user.do(user.mci(), "terminate")).result is ActionResult.SUCCEEDED


async def test_force_ends_the_running_action_and_goes_on_under_the_same_id(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("hang", seconds=30, verb="suspend")
    first = await user.admitted(user.mci(), "suspend")
    await user.until_delayed(user.vm("aws0-1"))
    second = await user.admitted(user.mci(), "terminate", force=True)
    assert second.run != first.run
    assert (await user.asking.wait_for_outcome(second.path, second.run)).status == "Terminated:2 (R:0/2)"
    assert (await user.asking.wait_for_outcome(first.path, first.run)).result is ActionResult.CANCELLED
    assert first.admission.grant
    assert second.admission.grant
    assert second.admission.grant.epoch > first.admission.grant.epoch
    await user.books_agree()


async def test_force_on_a_group_ends_the_actions_on_its_members(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("hang", seconds=30, verb="suspend")
    below = await user.admitted(user.vm("aws0-1"), "suspend")
    await user.until_delayed(user.vm("aws0-1"))
    assert (await user.do(user.mci(), "terminate", force=True)).status == "Terminated:2 (R:0/2)"
    assert (await user.asking.wait_for_outcome(below.path, below.run)).result is ActionResult.CANCELLED
    await user.books_agree()


async def test_force_on_a_member_does_not_end_the_action_of_its_group(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("throttle", verb="suspend")
    above = await user.admitted(user.mci(), "suspend")
    message = await user.refused(user.vm("aws0-1"), "terminate", force=True)
    await user.heal_faults()
    assert f"on {user.mci()}: suspend" in message
    assert (await user.asking.wait_for_outcome(above.path, above.run)).result is ActionResult.SUCCEEDED


@pytest.mark.parametrize("then", ["the same object", "its parent"])
async def test_an_action_terminated_from_outside_is_repaired_by_the_next_one(user: User, then: str) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("hang", seconds=30, verb="suspend")
    dead = await user.admitted(user.vm("aws0-1"), "suspend")
    await user.until_delayed(user.vm("aws0-1"))
    await user.asking.client.get_workflow_handle(dead.path).terminate(reason="an operator in the Web UI")
    path = user.vm("aws0-1") if then == "the same object" else user.mci()
    assert (await user.do(path, "reboot")).result is ActionResult.SUCCEEDED
    healed = [line for line in await user.history(user.vm("aws0-1")) if line.action == "heal"]
    assert [(line.actor, line.source, line.to) for line in healed] == [("Controller", "Suspending", "Running")]
    await user.books_agree()


async def test_the_workflow_id_must_be_the_objects_path(user: User) -> None:
    handle = await user.asking.client.start_workflow(
        wire.CONTROL_VMS,
        {"path": user.mci(), "action": "suspend"},
        id=f"another-id-{user.ns}",
        task_queue=wire.ACTIONS_QUEUE,
    )
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert "the workflow ID must be the object's path" in str(failure.value.cause)


async def test_an_action_can_be_started_plainly_with_one_json_object(user: User) -> None:
    await user.asking.client.start_workflow(
        wire.CREATE_MCI,
        {"path": user.mci(), "action": "create", "spec": spec(1, ["aws"])},
        id=user.mci(),
        task_queue=wire.ACTIONS_QUEUE,
    )
    assert (await user.asking.wait_for_outcome(user.mci())).status == "Running:1 (R:1/1)"


@pytest.mark.parametrize("wrong", [{"action": "suspend"}, {"path": "x", "action": "suspend"}, "text", {"nonsense": 1}])
async def test_a_request_that_is_no_request_fails_at_once_instead_of_hanging(user: User, wrong: Any) -> None:
    handle = await user.asking.client.start_workflow(
        wire.CONTROL_VMS, wrong, id=user.mci("wrong"), task_queue=wire.ACTIONS_QUEUE
    )
    with pytest.raises(WorkflowFailureError):
        await handle.result()


async def test_progress_and_lists_show_what_the_action_is_about(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(1))
    await user.fault("throttle", verb="suspend")
    ticket = await user.admitted(user.mci(), "suspend")
    seen = await progress_of(user.asking, ticket.path, ticket.run)
    await user.heal_faults()
    assert (seen.action, seen.phase, seen.targets) == ("suspend", "Suspending", 2)
    await user.asking.wait_for_outcome(ticket.path, ticket.run)
    described = await user.asking.newest_run(user.mci())
    assert described
    listed = {pair.key.name: pair.value for pair in decode_typed_search_attributes(described.info.search_attributes)}
    assert (listed["ObjectPath"], listed["ObjectKind"], listed["Action"]) == (user.mci(), "mci", "suspend")
    assert listed["Phase"] == "Suspended:2 (R:0/2)"
    assert listed["Providers"] == ["aws", "gcp"]
    assert listed["Progress"] == 100


async def test_hundreds_of_vms_make_a_short_history_of_small_payloads(user: User) -> None:
    outcome = await user.do(user.mci(), "create", spec=spec(300, ["aws", "gcp", "azure"]))
    assert outcome.status == "Running:900 (R:900/900)"
    await user.do(user.mci(), "suspend")
    history = await user.asking.client.get_workflow_handle(user.mci()).fetch_history()
    kinds = [EventType.Name(event.event_type) for event in history.events]
    own = [kind for kind in kinds if "_WORKFLOW_TASK_" not in kind]  # of those there are more on a busy machine
    assert len(own) <= 21, own  # seven per region
    assert max(event.ByteSize() for event in history.events) < 64 * 1024


async def test_caps_hold_over_all_actions_at_once_and_are_reached(user: User) -> None:
    cloud = user.service.simulated["ncp"]
    places = {user.region(n) for n in range(5)}
    wide = {
        "subGroups": [
            {"name": f"g{n}", "subGroupSize": 40, "csp": "ncp", "region": region}
            for n, region in enumerate(sorted(places))
        ]
    }
    await user.fault("slow", seconds=0.02, csp="ncp")
    names = ["one", "two", "three"]
    await asyncio.gather(*(user.do(user.mci(name), "create", spec=wide) for name in names))
    await asyncio.gather(*(user.do(user.mci(name), "reboot") for name in names))
    peaks = cloud.peak_concurrency()
    assert peaks.regions == CAPS_BY_CLOUD["ncp"].regions
    assert {peaks.vms[place] for place in places} == {CAPS_BY_CLOUD["ncp"].vms}
    assert user.service.context.permits.slots_in_use() == {}


async def test_what_must_not_be_cut_off_goes_to_its_end_and_tells_that_it_was_to_be() -> None:
    go = asyncio.Event()

    async def write() -> str:
        await go.wait()
        return "written"

    writing = asyncio.create_task(shield_from_cancel(write()))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.sleep(0)
    go.set()
    assert await writing == ("written", True)
    assert await shield_from_cancel(write()) == ("written", False)
