"""refine and delete: a record is removed only with its VM, and no VM stays without a record."""

from __future__ import annotations

import pytest

from domain.errors import Refused
from domain.model import ActionResult
from tests.orphans import listed, told
from tests.user import User, spec

pytestmark = pytest.mark.stores("postgres")


async def test_delete_terminates_everything_and_leaves_no_record(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec())
    await user.do(user.vm("aws0-1"), "suspend")
    outcome = await user.do(user.mci(), "delete")
    assert (outcome.result, outcome.status, outcome.done) == (ActionResult.SUCCEEDED, "None", 4)
    assert {vms[0].state for vms in (await user.books()).values()} == {"terminated"}
    for path in (user.mci(), user.vm("aws0-1")):
        with pytest.raises(Refused, match="there is no such"):
            await user.see(path)
    last = (await user.history(user.vm("aws0-1")))[-1]
    assert (last.action, last.source, last.to) == ("delete", "Terminating", "None")
    assert await user.service.inventory.list_locks(user.mci()) == []


async def test_a_deleted_name_can_be_used_again_and_gets_new_vms(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.do(user.mci(), "delete")
    assert (await user.do(user.mci(), "create", spec=spec(1, ["aws"]))).status == "Running:1 (R:1/1)"
    states = sorted(vm.state for vm in (await user.books())[user.vm("aws0-1")])
    assert states == ["running", "terminated"]


async def test_an_mci_that_is_terminated_or_failed_can_be_deleted(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.do(user.mci(), "terminate")
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    await user.fault("fail", verb="create")
    await user.do(user.mci("bad"), "create", spec=spec(2, ["aws"]))
    assert (await user.do(user.mci("bad"), "delete")).result is ActionResult.SUCCEEDED


async def test_a_record_goes_only_after_the_cloud_confirms(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("lie", vm="aws0-1", verb="terminate", times=1)
    outcome = await user.do(user.mci(), "delete")
    assert (outcome.result, outcome.done, outcome.failed) == (ActionResult.PARTIAL, 1, 1)
    left = await user.see(user.mci())
    assert [(vm.path, vm.status) for vm in left.members] == [(user.vm("aws0-1"), "Running")]
    assert left.members[0].error == "the cloud called it terminated, and that is not so"
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert (await user.books())[user.vm("aws0-1")][0].state == "terminated"


async def test_a_vm_that_its_cloud_wrongly_called_terminated_is_named_as_an_orphan_and_goes_with_the_mci(
    user: User,
) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("lie", vm="aws0-1", verb="terminate", times=1)
    assert (await user.do(user.mci(), "terminate")).status == "Terminated:2 (R:0/2)"
    (orphan,) = await listed(user.asking, user.mci())
    assert (orphan.path, orphan.state, orphan.record) == (user.vm("aws0-1"), "running", "Terminated")
    (said,) = await told(user.asking, user.mci())
    assert said.startswith(f"{user.vm('aws0-1')} is running")
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert (await user.books())[user.vm("aws0-1")][0].state == "terminated"


async def test_a_delete_that_fails_for_one_vm_keeps_the_mci_and_can_be_repeated(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(3, ["aws"]))
    await user.fault("fail", vm="aws0-2", verb="terminate", message="termination protection")
    outcome = await user.do(user.mci(), "delete")
    assert (outcome.result, outcome.status) == (ActionResult.PARTIAL, "Running:1 (R:1/1)")
    await user.heal_faults()
    assert (await user.do(user.mci(), "delete")).status == "None"


async def test_a_forced_delete_removes_the_records_and_says_what_may_be_left(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    calls = sum(vms[0].calls for vms in (await user.books()).values())
    outcome = await user.do(user.mci(), "delete", force=True)
    assert outcome.result is ActionResult.SUCCEEDED
    assert outcome.message == (
        "removed without asking the clouds: 2 VMs may be left there, and what VMs share in aws/r0"
    )
    assert sum(vms[0].calls for vms in (await user.books()).values()) == calls
    with pytest.raises(Refused, match="there is no such MCI"):
        await user.see(user.mci())


async def test_refine_removes_the_failed_and_leaves_the_others(user: User) -> None:
    await user.fault("fail", vm="aws0-2", verb="create", message="no capacity")
    assert (await user.do(user.mci(), "create", spec=spec(3, ["aws"]))).status == "Partial-Running:2 (R:2/3)"
    outcome = await user.do(user.mci(), "refine")
    assert (outcome.status, outcome.done, outcome.skipped) == ("Running:2 (R:2/2)", 1, {"Running": 2})
    await user.books_agree()


@pytest.mark.usefixtures("resigned")
async def test_refine_never_orphans_a_vm_of_which_nobody_heard(user: User) -> None:
    await user.fault("lose-answer", vm="aws0-1", verb="create")
    await user.fault("unavailable", vm="aws0-1", verb="describe")
    assert (await user.do(user.mci(), "create", spec=spec(2, ["aws"]))).status == "Partial-Failed:1 (R:1/2)"
    assert (await user.books())[user.vm("aws0-1")][0].state == "running"
    await user.heal_faults()
    assert (await user.do(user.mci(), "refine")).status == "Running:1 (R:1/1)"
    assert (await user.books())[user.vm("aws0-1")][0].state == "terminated"


async def test_an_mci_of_which_everything_was_refined_away_is_empty_and_can_only_be_deleted(user: User) -> None:
    await user.fault("fail", verb="create")
    assert (await user.do(user.mci(), "create", spec=spec(2, ["aws"]))).status == "Failed"
    assert (await user.do(user.mci(), "refine")).status == "Empty"
    assert (await user.do(user.mci(), "refine")).result is ActionResult.ALREADY
    assert await user.refused(user.mci(), "suspend") == f"{user.mci()} has no VM to suspend"
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED


async def test_refine_of_an_mci_in_which_nothing_failed_is_done_already(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    outcome = await user.do(user.mci(), "refine")
    assert (outcome.result, outcome.status) == (ActionResult.ALREADY, "Running:1 (R:1/1)")


async def test_a_single_vm_is_not_deleted_by_itself(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    with pytest.raises(Refused, match="unknown action 'delete' for VM"):
        await user.ask(user.vm("aws0-1"), "delete")


async def test_a_delete_that_is_cancelled_ends_with_the_truth_and_can_be_repeated(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("hang", vm="aws0-2", verb="terminate", seconds=600)
    ticket = await user.admitted(user.mci(), "delete")
    await user.until_delayed(user.vm("aws0-2"))
    await user.asking.cancel_action(user.mci())
    assert (await user.asking.wait_for_outcome(ticket.path, ticket.run)).result is ActionResult.CANCELLED
    await user.heal_faults()
    await user.books_agree()
    assert (await user.do(user.mci(), "delete")).status == "None"


@pytest.mark.parametrize("kind", ["throttle", "unavailable"])
async def test_a_cloud_that_cannot_be_asked_for_a_moment_is_asked_again(user: User, kind: str) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault(kind, verb="describe", times=2)
    outcome = await user.do(user.mci(), "delete")
    assert (outcome.result, outcome.status) == ("succeeded", "None")
