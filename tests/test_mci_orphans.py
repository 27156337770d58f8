"""Orphans: VMs that live in a cloud with a path of ours, and that no record knows, are found wherever they are."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from activities.mci.unanswered import LateVms
from activities.mci.vms import token_of
from domain.healing import Finding, Found, Sweep
from domain.mci.messages import READ_ORPHANS, Orphan, OrphanQuery, Orphans
from domain.model import Outcome, Query, Result, Verification
from domain.ports import Order, VmFacts
from domain.wire import VERIFY, placement
from store.mci.book import SqlBook
from tests.patience import PATIENCE
from tests.user import User


async def late(user: User, path: str, token: str, csp: str = "aws", n: int = 0, epoch: int = 1) -> VmFacts:
    """A VM that a cloud made after all, as its order was on the way for long."""
    (made,) = await user.service.simulated[csp].perform("create", user.region(n), [Order(path, token, epoch=epoch)])
    assert isinstance(made, VmFacts)
    return made


async def orphans(user: User, path: str, limit: int = 500) -> list[Orphan]:
    """All of them, page by page."""
    found: list[Orphan] = []
    after: Orphan | None = Orphan()
    while after is not None:
        query = OrphanQuery(path=path, after=after, limit=limit)
        page = await user.asking.read(READ_ORPHANS, query, Orphans)
        assert len(page.orphans) <= limit
        found, after = found + page.orphans, page.after
    return found


async def test_vms_of_an_mci_that_is_gone_are_found_in_places_without_a_record(user: User) -> None:
    gone = f"ns:{user.ns}:mci:gone"
    made = [await late(user, f"{gone}:vm:g-{n}", f"{gone} {n}", csp) for n in range(3) for csp in ("aws", "gcp")]
    found = await orphans(user, gone)
    assert {(each.path, each.cloud_id) for each in found} == {(vm.path, vm.cloud_id) for vm in made}
    assert {each.record for each in found} == {"none"}
    assert {each.place for each in found} == {placement(csp, user.region()) for csp in ("aws", "gcp")}
    assert await orphans(user, gone, limit=1) == found, "in pages of any size"
    cloud = user.service.simulated["aws"]
    for vm in made[::2]:
        await cloud.perform("terminate", user.region(), [Order(vm.path, f"end {vm.cloud_id}", vm.cloud_id, epoch=2)])
    assert {each.place for each in await orphans(user, gone)} == {placement("gcp", user.region())}


async def test_a_second_vm_of_a_record_is_an_orphan_and_the_records_own_is_none(user: User) -> None:
    path = f"ns:{user.ns}:mci:web"
    await user.do(path, "create", spec=user.groups("aws"))
    assert await orphans(user, path) == []
    double = await late(
        user, f"{path}:vm:aws-1", f"{path} of another life", epoch=(await user.see(f"{path}:vm:aws-1")).epoch
    )
    (found,) = await orphans(user, path)
    own = (await user.service.inventory.get(f"{path}:vm:aws-1")).info["cloud_id"]
    assert (found.cloud_id, found.record) == (double.cloud_id, f"Running as {own}")


async def removed(user: User, orphan: Orphan) -> Outcome:
    path = f"{orphan.path}:orphan:{orphan.cloud_id}"
    return await user.do(path, "remove", spec={"place": orphan.place})


async def states(user: User, path: str) -> list[str]:
    return sorted(str(vm.state) for vm in (await user.books()).get(path, []))


async def given_up(user: User, name: str = "late") -> tuple[str, str]:
    """An MCI whose only VM was ordered and never answered, cancelled and deleted. Its VM, and the order's token."""
    path, vm = user.mci(name), user.vm("aws-1", name)
    await user.fault("hang", vm="aws-1", verb="create", seconds=60)
    ticket = await user.admitted(path, "create", spec=user.groups("aws", size=1))
    async with asyncio.timeout(PATIENCE):
        while not (await user.see(path)).status.startswith("Creating"):
            await asyncio.sleep(0.02)
    generation = (await user.see(vm)).info["generation"]
    await user.asking.cancel(path)
    await user.asking.outcome(path, ticket.run)
    await user.heal_faults()
    await user.do(path, "delete")
    return vm, token_of(vm, generation, "create", 0)


async def test_a_create_that_is_carried_out_after_cancel_and_delete_is_found_and_removed(user: User) -> None:
    vm, token = await given_up(user)
    made = await late(user, vm, token)
    (found,) = await orphans(user, user.mci("late"))
    assert (found.path, found.cloud_id, found.record) == (vm, made.cloud_id, "none")
    assert (await removed(user, found)).result is Result.SUCCEEDED
    assert await orphans(user, user.mci("late")) == []
    assert await states(user, vm) == ["terminated"]
    assert [line.to for line in await user.history(f"{vm}:orphan:{made.cloud_id}")] == ["Removing", "None"]


async def swept(user: User, dry_run: bool = False) -> list[Found]:
    report = await user.asking.heal(Sweep(dry_run=dry_run))
    return [found for found in report.found if f"ns:{user.ns}:" in found.path]


async def promises(user: User) -> list[str]:
    """What `verify` says of this namespace."""
    found = await user.asking.read(VERIFY, Query(path=f"ns:{user.ns}"), Verification, seconds=60)
    return [str(each) for each in found.findings]


@pytest.mark.stores("sqlite", "postgres")
async def test_a_create_that_is_carried_out_after_cancel_and_delete_is_removed_by_the_next_sweep(user: User) -> None:
    vm, token = await given_up(user)
    assert await swept(user) == [], "nothing came of it yet"
    made = await late(user, vm, token)
    assert await promises(user) != []
    stray = f"{vm}:orphan:{made.cloud_id}"
    assert [(each.path, each.finding) for each in await swept(user, dry_run=True)] == [(stray, Finding.WOULD_REMOVE)]
    assert await states(user, vm) == ["running"]
    assert [(each.path, each.finding) for each in await swept(user)] == [(stray, Finding.REMOVED)]
    assert await states(user, vm) == ["terminated"]
    assert await promises(user) == []
    assert [line.to for line in await user.history(stray)] == ["Removing", "None"]
    assert await swept(user) == [], "once"


async def waiting(user: User) -> list[str]:
    """What is on record as ordered and never answered."""
    place = placement("aws", user.region())
    return [each.path for each in await SqlBook(user.service.database).unanswered(place, None, 500)]


@pytest.mark.stores("sqlite", "postgres")
async def test_an_unanswered_order_is_on_record_until_it_cannot_be_carried_out_any_more(user: User) -> None:
    vm, _ = await given_up(user)
    assert await waiting(user) == [vm]
    parts = user.service.parts
    late_vms = LateVms(SqlBook(parts.database), parts.clouds, parts.permits, 100)
    now = datetime.now(UTC)
    assert await late_vms.search(now + timedelta(seconds=90), dry_run=False) == []
    assert await waiting(user) == [vm], "it may still come"
    await late_vms.search(now + timedelta(seconds=110), dry_run=True)
    assert await waiting(user) == [vm], "a dry run writes nothing"
    await user.place_fault("throttle", verb="describe", times=1)
    await late_vms.search(now + timedelta(seconds=110), dry_run=False)
    assert await waiting(user) == [vm], "the cloud did not say"
    await user.heal_faults()
    await late_vms.search(now + timedelta(seconds=110), dry_run=False)
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
    assert [each.finding for each in await swept(user)] == [Finding.REMOVED]
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
        assert (await removed(user, orphan)).result is Result.SUCCEEDED
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
        f"{path}:vm:aws-1:orphan:{own}", "remove", spec={"place": placement("aws", user.region())}
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
    await user.asking.cancel(path)
    await user.asking.outcome(path, ticket.run)
    await user.heal_faults()
    outcome = await user.do(f"{vm}:orphan:{double.cloud_id}", "remove")  # without a place, all are asked
    assert outcome.result is Result.SUCCEEDED
    assert await states(user, vm) == ["running", "terminated"]
