"""Orphans: VMs in a cloud that carry a path of ours and that no record knows are found everywhere."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from activities.mci.latevms import LateVmSearch
from activities.mci.vms import order_token
from domain.healing import HealEntry, HealFinding, SweepOptions
from domain.invariants import VerificationReport
from domain.mci.messages import SurveyRequest
from domain.model import ActionResult, Outcome, ReadQuery
from domain.orphans import Orphan, OrphanQuery, OrphansPage
from domain.ports import VmFacts, VmOrder
from domain.wire import READ_ORPHANS, VERIFY_ACTIVITY, make_placement
from starter.mci import requests
from store.mci.inventory import SqlMciStore
from store.schema import objects
from tests.patience import PATIENCE
from tests.user import User


async def late(user: User, path: str, token: str, csp: str = "aws", n: int = 0, epoch: int = 1) -> VmFacts:
    """A VM that a cloud made after all, as its order was on the way for long."""
    (made,) = await user.service.simulated[csp].perform_orders(
        "create", user.region(n), [VmOrder(path, token, epoch=epoch)]
    )
    assert isinstance(made, VmFacts)
    return made


async def orphans(user: User, path: str, limit: int = 500) -> list[Orphan]:
    """All of them, page by page."""
    found: list[Orphan] = []
    after: Orphan | None = Orphan()
    while after is not None:
        query = OrphanQuery(path=path, after=after, limit=limit)
        page = await user.asking.run_query(READ_ORPHANS, query, OrphansPage)
        assert len(page.orphans) <= limit
        found, after = found + page.orphans, page.after
    return found


async def test_vms_of_an_mci_that_is_gone_are_found_in_places_without_a_record(user: User) -> None:
    gone = f"ns:{user.ns}:mci:gone"
    made = [await late(user, f"{gone}:vm:g-{n}", f"{gone} {n}", csp) for n in range(3) for csp in ("aws", "gcp")]
    found = await orphans(user, gone)
    assert {(orphan.path, orphan.id) for orphan in found} == {(vm.path, vm.cloud_id) for vm in made}
    assert {orphan.record for orphan in found} == {"none"}
    assert {orphan.provider for orphan in found} == {make_placement(csp, user.region()) for csp in ("aws", "gcp")}
    assert await orphans(user, gone, limit=1) == found, "in pages of any size"
    cloud = user.service.simulated["aws"]
    for vm in made[::2]:
        await cloud.perform_orders(
            "terminate", user.region(), [VmOrder(vm.path, f"end {vm.cloud_id}", vm.cloud_id, epoch=2)]
        )
    assert {orphan.provider for orphan in await orphans(user, gone)} == {make_placement("gcp", user.region())}


async def test_a_second_vm_of_a_record_is_an_orphan_and_the_records_own_is_none(user: User) -> None:
    path = f"ns:{user.ns}:mci:web"
    await user.do(path, "create", spec=user.groups("aws"))
    assert await orphans(user, path) == []
    double = await late(
        user, f"{path}:vm:aws-1", f"{path} of another life", epoch=(await user.see(f"{path}:vm:aws-1")).epoch
    )
    (found,) = await orphans(user, path)
    own = (await user.service.inventory.read_object(f"{path}:vm:aws-1")).info["cloud_id"]
    assert (found.id, found.record) == (double.cloud_id, f"Running as {own}")


async def removed(user: User, orphan: Orphan) -> Outcome:
    path = f"{orphan.path}:orphan:{orphan.id}"
    return await user.do(path, "remove", spec={"place": orphan.provider})


async def adopted(user: User, orphan: Orphan) -> Outcome:
    path = f"{orphan.path}:orphan:{orphan.id}"
    return await user.do(path, "adopt", spec={"place": orphan.provider})


async def states(user: User, path: str) -> list[str]:
    return sorted(str(vm.state) for vm in (await user.books()).get(path, []))


async def given_up(user: User, name: str = "late") -> tuple[str, str]:
    """An MCI whose only VM was ordered and never answered, cancelled and deleted. Its VM, and the order's token."""
    path, vm = user.mci(name), user.vm("aws-1", name)
    await user.fault("hang", vm="aws-1", verb="create", seconds=60)
    ticket = await user.admitted(path, "create", spec=user.groups("aws", size=1))
    await user.until_delayed(vm)
    generation = (await user.see(vm)).info["generation"]
    await user.asking.cancel_action(path)
    await user.asking.wait_for_outcome(path, ticket.run)
    await user.heal_faults()
    await user.do(path, "delete")
    return vm, order_token(vm, generation, "create", 0)


async def test_a_create_that_is_carried_out_after_cancel_and_delete_is_found_and_removed(user: User) -> None:
    vm, token = await given_up(user)
    made = await late(user, vm, token)
    (found,) = await orphans(user, user.mci("late"))
    assert (found.path, found.id, found.record) == (vm, made.cloud_id, "none")
    assert (await removed(user, found)).result is ActionResult.SUCCEEDED
    assert await orphans(user, user.mci("late")) == []
    assert await states(user, vm) == ["terminated"]
    assert [line.to for line in await user.history(f"{vm}:orphan:{made.cloud_id}")] == ["Removing", "None"]
    assert (await removed(user, found)).message == "there is no such VM any more"


async def swept(user: User, dry_run: bool = False) -> list[HealEntry]:
    report = await user.asking.run_sweep(SweepOptions(dry_run=dry_run))
    return [found for found in report.found if f"ns:{user.ns}:" in found.path]


async def promises(user: User) -> list[str]:
    """What `verify` says of this namespace."""
    found = await user.asking.run_query(
        VERIFY_ACTIVITY, ReadQuery(path=f"ns:{user.ns}"), VerificationReport, seconds=PATIENCE
    )
    return [str(finding) for finding in found.findings]


@pytest.mark.stores("sqlite", "postgres")
async def test_a_create_that_is_carried_out_after_cancel_and_delete_is_removed_by_the_next_sweep(user: User) -> None:
    vm, token = await given_up(user)
    assert await swept(user) == [], "nothing came of it yet"
    made = await late(user, vm, token)
    assert await promises(user) != []
    stray = f"{vm}:orphan:{made.cloud_id}"
    assert [(entry.path, entry.finding) for entry in await swept(user, dry_run=True)] == [
        (stray, HealFinding.WOULD_REMOVE)
    ]
    assert await states(user, vm) == ["running"]
    assert [(entry.path, entry.finding) for entry in await swept(user)] == [(stray, HealFinding.REMOVED)]
    assert await states(user, vm) == ["terminated"]
    assert await promises(user) == []
    assert [line.to for line in await user.history(stray)] == ["Removing", "None"]
    assert await swept(user) == [], "once"


async def waiting(user: User) -> list[str]:
    """What is on record as ordered and never answered."""
    place = make_placement("aws", user.region())
    return [order.path for order in await SqlMciStore(user.service.database).list_unanswered_orders(place, None, 500)]


@pytest.mark.stores("sqlite", "postgres")
async def test_an_unanswered_order_is_on_record_until_it_cannot_be_carried_out_any_more(user: User) -> None:
    vm, _ = await given_up(user)
    assert await waiting(user) == [vm]
    context = user.service.context
    late_vms = LateVmSearch(SqlMciStore(context.database), context.clouds, context.permits, 100)
    place = make_placement("aws", user.region())
    [order] = await SqlMciStore(user.service.database).list_unanswered_orders(place, None, 500)
    now = order.since  # however long ago that is
    assert await late_vms.find_late_vms(now + timedelta(seconds=90), dry_run=False) == []
    assert await waiting(user) == [vm], "it may still come"
    await late_vms.find_late_vms(now + timedelta(seconds=110), dry_run=True)
    assert await waiting(user) == [vm], "a dry run writes nothing"
    await user.place_fault("throttle", verb="describe", times=1)
    await late_vms.find_late_vms(now + timedelta(seconds=110), dry_run=False)
    assert await waiting(user) == [vm], "the cloud did not say"
    await user.heal_faults()
    await late_vms.find_late_vms(now + timedelta(seconds=110), dry_run=False)
    assert await waiting(user) == []


@pytest.mark.stores("sqlite", "postgres")
async def test_only_a_vm_that_has_no_id_of_its_cloud_stays_on_record_when_records_go(user: User) -> None:
    await user.fault("fail", vm="aws-2", verb="create")
    await user.do(user.mci(), "create", spec=user.groups("aws", size=3))
    await user.do(user.mci(), "delete", force=True)
    assert await waiting(user) == [user.vm("aws-2")]


async def test_a_vm_that_comes_late_beside_a_new_one_of_its_name_is_removed_and_the_new_one_stays(user: User) -> None:
    vm, token = await given_up(user)
    await user.do(user.mci("late"), "create", spec=user.groups("aws", size=1))
    await late(user, vm, token, epoch=(await user.see(vm)).epoch)
    assert [entry.finding for entry in await swept(user)] == [HealFinding.REMOVED]
    assert await states(user, vm) == ["running", "terminated"]
    assert (await user.do(user.mci("late"), "reboot")).done == 1
    assert await promises(user) == []


async def test_forty_vms_for_twenty_records_are_twenty_again(user: User) -> None:
    path = f"ns:{user.ns}:mci:twice"
    await user.do(path, "create", spec=user.groups("aws", size=20))
    for n in range(1, 21):
        vm = f"{path}:vm:aws-{n}"
        await late(user, vm, f"{vm} of another life", epoch=(await user.see(vm)).epoch)
    found = await orphans(user, path)
    assert len(found) == 20
    for orphan in found:
        assert (await removed(user, orphan)).result is ActionResult.SUCCEEDED
    assert await orphans(user, path) == []
    view = await user.see(path)
    assert view.status == "Running:20 (R:20/20)"
    assert await states(user, f"{path}:vm:aws-7") == ["running", "terminated"]
    assert (await user.do(path, "reboot")).done == 20, "its own VMs are as they were"


async def test_what_a_record_calls_its_own_is_not_removed_as_an_orphan(user: User) -> None:
    path = f"ns:{user.ns}:mci:own"
    await user.do(path, "create", spec=user.groups("aws", size=1))
    own = (await user.see(f"{path}:vm:aws-1")).info["cloud_id"]
    told = await user.refused(
        f"{path}:vm:aws-1:orphan:{own}", "remove", spec={"place": make_placement("aws", user.region())}
    )
    assert told == f"{own} is the VM of {path}:vm:aws-1, which is Running: no orphan"
    assert await states(user, f"{path}:vm:aws-1") == ["running"]


async def test_an_orphan_is_left_alone_while_an_action_runs_on_its_path(user: User) -> None:
    path = f"ns:{user.ns}:mci:busy"
    await user.do(path, "create", spec=user.groups("aws", size=1))
    vm = f"{path}:vm:aws-1"
    double = await late(user, vm, f"{vm} of another life", epoch=(await user.see(vm)).epoch)
    await user.fault("hang", vm="aws-1", verb="reboot", seconds=60)
    ticket = await user.admitted(path, "reboot")
    told = await user.refused(f"{vm}:orphan:{double.cloud_id}", "remove")
    assert "other action currently happening" in told
    await user.asking.cancel_action(path)
    await user.asking.wait_for_outcome(path, ticket.run)
    await user.heal_faults()
    outcome = await user.do(f"{vm}:orphan:{double.cloud_id}", "remove")  # without a place, all are asked
    assert outcome.result is ActionResult.SUCCEEDED
    assert await states(user, vm) == ["running", "terminated"]


@pytest.mark.stores("sqlite", "postgres")
async def test_a_failed_record_adopts_a_vm_that_carries_its_path(user: User) -> None:
    await user.fault("fail", vm="aws-2", verb="create")
    await user.do(user.mci(), "create", spec=user.groups("aws"))
    await user.heal_faults()
    vm = user.vm("aws-2")
    made = await late(user, vm, f"{vm} of another life")
    (found,) = await orphans(user, user.mci())
    assert (found.id, found.record) == (made.cloud_id, "Failed")
    outcome = await adopted(user, found)
    assert (outcome.result, outcome.message) == (ActionResult.SUCCEEDED, f"{vm} is Running: its VM is {made.cloud_id}")
    record = await user.see(vm)
    assert (record.status, record.info["cloud_id"], record.error) == ("Running", made.cloud_id, "")
    assert (line := (await user.history(vm))[-1]).action == "observe"
    assert line.message == f"adopted {made.cloud_id}, which is running"
    assert [line.to for line in await user.history(f"{vm}:orphan:{made.cloud_id}")] == ["Adopting", "None"]
    assert (await user.do(user.mci(), "reboot")).done == 2
    assert (await orphans(user, user.mci()), await promises(user)) == ([], [])


async def test_an_undefined_record_whose_vm_is_gone_adopts_another_one(user: User) -> None:
    vm = user.vm("aws-1")
    await user.do(user.mci(), "create", spec=user.groups("aws", size=1))
    await user.lose(vm)
    await requests.run_survey(user.asking, SurveyRequest(path=user.mci(), reconcile=True))
    assert (await user.see(vm)).status == "Undefined"
    made = await late(user, vm, f"{vm} of another life", epoch=(await user.see(vm)).epoch)
    (found,) = await orphans(user, user.mci())
    assert (await adopted(user, found)).result is ActionResult.SUCCEEDED
    assert (await user.see(vm)).info["cloud_id"] == made.cloud_id
    assert (await user.do(vm, "suspend")).result is ActionResult.SUCCEEDED


@pytest.mark.stores("sqlite", "postgres")
async def test_a_record_that_is_missing_is_made_again_and_no_sweep_removes_its_vm(user: User) -> None:
    await user.fault("fail", vm="aws-2", verb="create")
    await user.do(user.mci(), "create", spec=user.groups("aws"))
    vm = user.vm("aws-2")
    generation = (await user.see(vm)).info["generation"]
    await user.do(user.mci(), "refine")
    await user.heal_faults()
    assert await waiting(user) == [vm]
    made = await late(user, vm, order_token(vm, generation, "create", 0))
    (found,) = await orphans(user, user.mci())
    assert (await adopted(user, found)).result is ActionResult.SUCCEEDED
    record = await user.see(vm)
    assert (record.status, record.info["cloud_id"], record.spec["subGroup"]) == ("Running", made.cloud_id, "aws")
    assert [(line.action, line.to) for line in await user.history(vm)][-2:] == [
        ("scale-out", "Creating"),
        ("observe", "Running"),
    ]
    assert (await waiting(user), await swept(user), await promises(user)) == ([], [], [])
    await user.do(user.mci(), "scale-out", spec={"subGroup": "aws"})
    assert {member.path for member in (await user.see(user.mci())).members} == {user.vm(f"aws-{n}") for n in (1, 2, 3)}
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert await states(user, vm) == ["terminated"]


async def test_a_number_that_was_never_used_is_not_given_again_after_an_adoption(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups("aws", size=1))
    vm = user.vm("aws-3")
    made = await late(user, vm, f"{vm} of another life")
    place = make_placement("aws", user.region())
    assert (
        await user.do(f"{vm}:orphan:{made.cloud_id}", "adopt", spec={"place": place})
    ).result is ActionResult.SUCCEEDED
    await user.do(user.mci(), "scale-out", spec={"subGroup": "aws"})
    assert {member.path for member in (await user.see(user.mci())).members} == {user.vm(f"aws-{n}") for n in (1, 3, 4)}


@pytest.mark.parametrize(
    ("vm", "place", "words"),
    [
        ("gone:vm:aws-1", "here", "there is no MCI ns:{ns}:mci:gone: nothing could adopt its VM"),
        ("web:vm:aws-1", "here", "is Running: only a record that is missing, Failed or Undefined can be given a VM"),
        ("web:vm:aws-9", "aws/r9999", "belongs in aws/{region}; what was found is in aws/r9999"),
        ("web:vm:back-1", "here", "{ns}/web has no subgroup whose VM could be back-1"),
        ("web:vm:aws-x", "here", "{ns}/web has no subgroup whose VM could be aws-x"),
        ("web:vm:aws-9", "", "say where it is"),
    ],
)
async def test_what_fits_no_record_is_not_adopted(user: User, vm: str, place: str, words: str) -> None:
    await user.do(user.mci(), "create", spec=user.groups("aws", size=1))
    where = make_placement("aws", user.region()) if place == "here" else place
    told = await user.refused(f"ns:{user.ns}:mci:{vm}:orphan:some-id", "adopt", spec={"place": where})
    assert words.format(ns=user.ns, region=user.region()) in told


async def test_an_orphan_is_not_adopted_beside_the_records_own_vm_nor_if_it_is_gone(user: User) -> None:
    vm = user.vm("aws-1")
    await user.do(user.mci(), "create", spec=user.groups("aws", size=1))
    own = await user.see(vm)
    double = await late(user, vm, f"{vm} of another life", epoch=own.epoch)
    failed = sa.update(objects).where(objects.c.path == vm).values(status="Failed")
    await user.service.database.run_transaction(lambda connection: connection.execute(failed).rowcount)
    place = make_placement("aws", user.region())
    for cloud_id, words in (
        (double.cloud_id, f"{vm} has a VM, {own.info['cloud_id']}, which is running: it must go first"),
        ("nothing", f"nothing is not in {place} any more"),
    ):
        outcome = await user.do(f"{vm}:orphan:{cloud_id}", "adopt", spec={"place": place})
        assert outcome.result is ActionResult.FAILED
        assert words in outcome.message
    assert (await user.see(vm)).info["cloud_id"] == own.info["cloud_id"]
