"""`policyOnPartialFailure`: an MCI of which some VMs could not be made; and regions without capacity."""

from __future__ import annotations

import pytest

from domain.errors import Refused
from domain.model import ActionResult
from domain.ports import SHARED_RESOURCE_TYPES
from tests.user import User

pytestmark = pytest.mark.stores("postgres")


async def test_continue_keeps_what_runs_and_failed_vms_stay_failed_with_error_phase_and_time(user: User) -> None:
    await user.fault("fail", vm="aws-2", verb="create", message="bad luck")
    outcome = await user.do(user.mci(), "create", spec=user.groups(size=3))
    assert (outcome.result, outcome.status, outcome.done, outcome.failed) == (
        ActionResult.PARTIAL,
        "Partial-Running:2 (R:2/3)",
        2,
        1,
    )
    vm = await user.see(user.vm("aws-2"))
    assert (vm.status, vm.error) == ("Failed", "bad luck")
    assert (vm.info["failure"]["phase"], vm.info["failure"]["error"]) == ("Creating", "bad luck")
    assert vm.info["failure"]["at"][:10] == f"{vm.changed_at:%Y-%m-%d}"


async def test_refine_cleans_failed_vms_away_and_says_which(user: User) -> None:
    await user.fault("fail", vm="aws-2", verb="create", message="bad luck")
    outcome = await user.do(user.mci(), "create", spec=user.groups(size=3, policyOnPartialFailure="refine"))
    assert (outcome.result, outcome.status) == (ActionResult.PARTIAL, "Running:2 (R:2/2)")
    assert (outcome.done, outcome.failed) == (2, 1)
    assert outcome.message == "1 of 3 VMs could not be made and were cleaned away"
    assert [(trouble.path, trouble.error) for trouble in outcome.troubles] == [(user.vm("aws-2"), "bad luck")]
    told = [(line.actor, line.action, line.to) for line in await user.history(user.vm("aws-2"))]
    assert told[-2:] == [("Group", "refine", "Terminating"), ("Cloud", "refine", "None")]
    await user.books_agree()


async def test_refine_orphans_no_vm_of_which_nobody_heard(user: User) -> None:
    await user.fault("lose-answer", vm="aws-1", verb="create", times=1)
    await user.fault("fail", vm="aws-1", verb="create", message="gone mad")
    await user.fault("unknown-status", vm="aws-1", verb="describe", times=1)
    outcome = await user.do(user.mci(), "create", spec=user.groups(policyOnPartialFailure="refine"))
    assert outcome.status == "Running:1 (R:1/1)"
    assert (await user.books())[user.vm("aws-1")][0].state == "terminated"
    await user.books_agree()


@pytest.mark.parametrize("policy", ["refine", "rollback"])
async def test_a_creation_in_which_nothing_failed_is_left_alone(user: User, policy: str) -> None:
    outcome = await user.do(user.mci(), "create", spec=user.groups(policyOnPartialFailure=policy))
    assert (outcome.result, outcome.status, outcome.message) == (ActionResult.SUCCEEDED, "Running:2 (R:2/2)", "")


async def test_rollback_removes_everything_that_was_made_and_what_nobody_else_shares(user: User) -> None:
    await user.do(user.mci("other"), "create", spec=user.groups("gcp"))
    await user.fault("fail", vm="aws-2", verb="create", message="bad luck")
    spec = user.groups("aws", "gcp", size=3, policyOnPartialFailure="rollback")
    outcome = await user.do(user.mci(), "create", spec=spec)
    assert (outcome.result, outcome.status, outcome.done) == (ActionResult.FAILED, "None", 0)
    assert outcome.message == "1 of 6 VMs could not be made: everything was rolled back"
    assert [(trouble.path, trouble.error) for trouble in outcome.troubles] == [(user.vm("aws-2"), "bad luck")]
    with pytest.raises(Refused, match="there is no such MCI"):
        await user.see(user.mci())
    mine = {path: vms for path, vms in (await user.books()).items() if path.startswith(f"{user.mci()}:")}
    assert len(mine) == 5
    assert {vms[0].state for vms in mine.values()} == {"terminated"}
    assert await user.shared("aws") == {}
    assert set(await user.shared("gcp")) == set(SHARED_RESOURCE_TYPES)
    last = (await user.history(user.mci()))[-1]
    assert (last.source, last.to) == ("Creating", "None")
    assert await user.service.inventory.list_locks(user.mci()) == []


async def test_a_rollback_that_cannot_remove_a_vm_keeps_its_record_and_can_be_finished_by_delete(user: User) -> None:
    await user.fault("fail", vm="aws-2", verb="create")
    await user.fault("fail", vm="aws-1", verb="terminate", message="protected")
    outcome = await user.do(user.mci(), "create", spec=user.groups(size=3, policyOnPartialFailure="rollback"))
    assert outcome.result is ActionResult.FAILED
    assert "the rollback could not remove everything" in outcome.message
    seen = await user.see(user.mci())
    assert [(vm.path, vm.status, vm.error) for vm in seen.members] == [(user.vm("aws-1"), "Running", "protected")]
    await user.books_agree()
    await user.heal_faults()
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert await user.shared() == {}


async def test_when_every_vm_fails_continue_and_refine_leave_a_failed_mci_and_rollback_none(user: User) -> None:
    await user.fault("fail", verb="create")
    for name, policy, status in (("a", "continue", "Failed"), ("b", "refine", "Failed"), ("c", "rollback", "None")):
        outcome = await user.do(user.mci(name), "create", spec=user.groups(policyOnPartialFailure=policy))
        assert (outcome.result, outcome.status) == (ActionResult.FAILED, status), policy
    assert await user.books() == {}


async def test_a_quota_stops_the_rest_of_its_region_only(user: User) -> None:
    cloud = user.service.simulated["aws"]
    await cloud.set_quota(user.region(), 40)
    spec = user.groups(size=100)
    spec["subGroups"].append({"name": "elsewhere", "subGroupSize": 50, "csp": "aws", "region": user.region(1)})
    spec["subGroups"].append({"name": "other", "subGroupSize": 50, "csp": "gcp", "region": user.region()})
    outcome = await user.do(user.mci(), "create", spec=spec)
    assert (outcome.result, outcome.done, outcome.failed) == (ActionResult.PARTIAL, 140, 60)
    seen = await user.see(user.mci())
    errors = [vm.error for vm in seen.members if vm.status == "Failed"]
    refused = [error for error in errors if error.startswith("quota of VMs in aws/")]
    untried = [error for error in errors if error.startswith("not tried, there is no more room: quota of VMs in aws/")]
    assert len(refused) + len(untried) == 60
    assert 1 <= len(refused) <= 30, "no more than were in flight"
    assert {vm.placement for vm in seen.members if vm.status == "Failed"} == {f"aws/{user.region()}"}
    await user.books_agree()


async def test_no_room_in_a_region_is_found_out_by_one_call_and_not_by_each_vm(user: User) -> None:
    await user.place_fault("capacity", message="InsufficientInstanceCapacity")
    outcome = await user.do(user.mci(), "create", spec=user.groups(size=200))
    assert (outcome.result, outcome.failed) == (ActionResult.FAILED, 200)
    errors = [vm.error for vm in (await user.see(user.mci())).members]
    assert sum(error.startswith("not tried") for error in errors) >= 200 - 30
