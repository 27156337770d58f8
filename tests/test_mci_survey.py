"""`status --refresh` asks the clouds as little as possible; `reconcile` compares every record with them."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from activities.mci.listing import VmListing
from activities.mci.survey import SurveyActivities
from activities.permits import PermitPool
from activities.retry import ProviderRetry
from domain.errors import Refused
from domain.limits import CAPS_BY_CLOUD, ConcurrencyCaps
from domain.mci.messages import SurveyPlace, SurveyReport, SurveyRequest
from domain.ports import VmFacts, VmKey, VmOrder
from providers.simulated.tables import vms
from starter.mci import requests
from starter.mci.documents import mci_document
from store.mci.inventory import SqlMciStore
from tests.localpermits import LocalPermitStore
from tests.user import User

pytestmark = pytest.mark.stores("postgres")


async def refresh(user: User, mci: str = "web") -> SurveyReport:
    return await requests.run_survey(user.asking, SurveyRequest(path=user.mci(mci)))


async def reconcile(user: User, dry_run: bool = False) -> SurveyReport:
    return await requests.run_survey(user.asking, SurveyRequest(path=user.mci(), reconcile=True, dry_run=dry_run))


async def meddle(user: User, vm: str, state: str) -> None:
    """Somebody changes a VM in the cloud's own console."""
    change = sa.update(vms).where(vms.c.path == user.vm(vm)).values(state=state)
    await user.service.cloud_database.run_transaction(lambda connection: connection.execute(change).rowcount)


async def statuses(user: User) -> dict[str, str]:
    return {vm.path.rsplit(":", 1)[1]: vm.status for vm in (await user.see(user.mci())).members}


async def test_a_status_read_calls_no_cloud_for_terminated_failed_and_suspended_vms(user: User) -> None:
    await user.fault("fail", vm="aws-3", verb="create")
    await user.do(user.mci(), "create", spec=user.groups("aws", "gcp", size=4))
    await user.do(user.vm("aws-1"), "suspend")
    await user.do(user.vm("aws-2"), "terminate")
    before = {path: found[0].calls for path, found in (await user.books()).items()}
    report = await refresh(user)
    assert (report.asked, report.saved, report.calls) == (5, 3, 2)
    assert (report.changes, report.stale, report.errors) == ({}, 0, [])
    assert {path: found[0].calls for path, found in (await user.books()).items()} == before, "a read changes nothing"


async def test_a_read_that_needs_nothing_makes_no_call(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.do(user.mci(), "suspend")
    report = await refresh(user)
    assert (report.asked, report.saved, report.calls) == (0, 2, 0)


async def test_many_vms_are_read_with_one_call_for_each_region(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups("aws", "gcp", size=200))
    report = await refresh(user)
    assert (report.asked, report.calls) == (400, 2)


@pytest.mark.parametrize(("state", "status"), [("stopped", "Suspended"), ("terminated", "Terminated")])
async def test_reads_correct_drift(user: User, state: str, status: str) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await meddle(user, "aws-1", state)
    report = await refresh(user)
    assert report.changes == {f"Running to {status}": 1}
    assert (await user.see(user.vm("aws-1"))).status == status
    last = (await user.history(user.vm("aws-1")))[-1]
    assert (last.actor, last.action, last.source, last.to) == ("Cloud", "observe", "Running", status)
    await user.books_agree()
    assert (await refresh(user)).changes == {}


async def test_only_a_cloud_that_says_no_such_vm_makes_undefined(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.lose(user.vm("aws-1"))
    assert (await refresh(user)).changes == {"Running to Undefined": 1}
    vm = await user.see(user.vm("aws-1"))
    assert (vm.status, vm.error) == ("Undefined", "the cloud knows no such VM")
    assert (await user.do(user.mci(), "refine")).status == "Running:1 (R:1/1)"


async def test_a_read_error_keeps_the_last_known_status_and_marks_it_stale(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups("aws", "gcp"))
    await meddle(user, "aws-1", "stopped")
    await user.fault("unavailable", vm="aws-*", verb="describe", message="service unavailable")
    report = await refresh(user)
    assert (report.stale, report.errors) == (2, [f"aws/{user.region()}: service unavailable"])
    vm = await user.see(user.vm("aws-1"))
    assert (vm.status, vm.info["stale"]["error"]) == ("Running", "service unavailable")
    assert "stale" not in (await user.see(user.vm("gcp-1"))).info
    await user.heal_faults()
    assert (await refresh(user)).changes == {"Running to Suspended": 1}
    assert "stale" not in (await user.see(user.vm("aws-1"))).info
    assert "stale" not in (await user.see(user.vm("aws-2"))).info


async def test_a_status_that_nobody_knows_changes_nothing(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("unknown-status", verb="describe")
    assert (await refresh(user)).changes == {}
    assert await statuses(user) == {"aws-1": "Running", "aws-2": "Running"}


async def test_an_action_in_flight_wins_over_a_read(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.do(user.vm("aws-2"), "suspend")
    await user.fault("hang", verb="reboot", seconds=600)
    ticket = await user.admitted(user.vm("aws-1"), "reboot")
    await user.until_delayed(user.vm("aws-1"))
    await meddle(user, "aws-2", "running")
    report = await refresh(user)
    assert (report.asked, report.saved, report.changes) == (1, 1, {})
    assert await statuses(user) == {"aws-1": "Rebooting", "aws-2": "Suspended"}
    await user.heal_faults()
    await user.asking.wait_for_outcome(ticket.path, ticket.run)


async def test_reads_keep_to_the_caps_of_regions(user: User) -> None:
    cloud, most = user.service.simulated["ncp"], CAPS_BY_CLOUD["ncp"].regions
    places = [f"r{9000 + n}" for n in range(2 * most)]
    groups = [{"name": f"g{n}", "csp": "ncp", "region": place} for n, place in enumerate(places)]
    await user.do(user.mci(), "create", spec={"subGroups": groups})
    await user.fault("slow", verb="describe", seconds=0.1)
    await refresh(user)
    assert cloud.peak_concurrency().regions <= most
    assert {cloud.peak_concurrency().reads[place] for place in places} == {1}


async def test_a_survey_of_an_mci_that_is_not_there_is_refused(user: User) -> None:
    with pytest.raises(Refused, match="there is no such MCI"):
        await refresh(user)


async def test_reconcile_adopts_what_a_lost_answer_left_behind(user: User) -> None:
    await user.fault("lose-answer", vm="aws-1", verb="create", times=1)
    await user.fault("fail", vm="aws-1", verb="create", message="gone mad")
    await user.fault("unknown-status", vm="aws-1", verb="describe", times=1)
    assert (await user.do(user.mci(), "create", spec=user.groups())).status == "Partial-Failed:1 (R:1/2)"
    report = await reconcile(user)
    assert report.changes == {"Failed to Running": 1}
    vm = await user.see(user.vm("aws-1"))
    real = (await user.books())[user.vm("aws-1")][0]
    assert (vm.status, vm.info["cloud_id"], vm.info["address"]) == ("Running", real.cloud_id, real.address)
    assert ("failure" in vm.info, vm.error) == (False, "")
    await user.books_agree()
    assert (await user.do(user.mci(), "suspend")).status == "Suspended:2 (R:0/2)"


async def test_reconcile_brings_a_failed_vm_back_to_what_the_cloud_says_it_is(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("fail", vm="aws-1", verb="suspend")
    await user.fault("unknown-status", vm="aws-1", verb="describe", times=1)
    assert (await user.do(user.mci(), "suspend")).status == "Partial-Failed:1 (R:0/2)"
    assert (await refresh(user)).changes == {}, "a status read believes what has failed"
    assert (await reconcile(user)).changes == {"Failed to Running": 1}
    await user.books_agree()


async def test_reconcile_marks_what_is_gone_and_finds_what_was_suspended_or_started(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups(size=3))
    await user.do(user.vm("aws-2"), "suspend")
    await user.lose(user.vm("aws-1"))
    await meddle(user, "aws-2", "running")
    await meddle(user, "aws-3", "stopped")
    assert (await reconcile(user)).changes == {
        "Running to Suspended": 1,
        "Running to Undefined": 1,
        "Suspended to Running": 1,
    }
    assert await statuses(user) == {"aws-1": "Undefined", "aws-2": "Running", "aws-3": "Suspended"}


async def test_a_vm_that_was_never_made_stays_failed(user: User) -> None:
    await user.fault("fail", vm="aws-1", verb="create")
    await user.do(user.mci(), "create", spec=user.groups())
    assert (await reconcile(user)).changes == {}
    assert (await statuses(user))["aws-1"] == "Failed"


async def test_reconcile_reports_orphans_and_touches_them_not(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    cloud = user.service.simulated["aws"]
    await cloud.perform_orders("create", user.region(), [VmOrder(user.vm("stray-1"), "stray")])
    await cloud.perform_orders("create", user.region(), [VmOrder(user.vm("aws-1"), "a second one", epoch=2**60)])
    report = await reconcile(user)
    assert report.orphans_found == 2
    assert sorted(line.split(":")[0] for line in report.orphans) == [f"{user.ns}/web/aws-1", f"{user.ns}/web/stray-1"]
    assert (await user.books())[user.vm("stray-1")][0].state == "running"


async def test_a_cloud_that_does_not_list_its_vms_in_time_is_told_as_such(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_region: str, _prefix: str, _after: VmKey) -> list[VmFacts]:
        await asyncio.Event().wait()
        return []

    cloud = user.service.simulated["aws"]
    monkeypatch.setattr(cloud, "list_tagged_vms", silent)
    book = SqlMciStore(user.service.database)
    reach = ({"aws": cloud}, PermitPool(ConcurrencyCaps(), LocalPermitStore()), ProviderRetry(call_seconds=0.05))

    async def places() -> list[str]:
        return []

    surveys = SurveyActivities(book, *reach, user.service.inventory, VmListing(*reach, places))
    report = await surveys.survey_place(
        SurveyPlace(survey=SurveyRequest(path=user.mci(), reconcile=True), place="aws/eu-central-1", chunks=[])
    )
    assert report.errors == ["aws/eu-central-1: no answer in time"]


async def test_a_dry_run_says_what_it_would_do_and_does_nothing(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await meddle(user, "aws-1", "stopped")
    before = await user.see(user.mci())
    report = await reconcile(user, dry_run=True)
    assert report.corrected == [f"{user.ns}/web/aws-1: Running to Suspended"]
    assert await user.see(user.mci()) == before
    assert (await reconcile(user)).changes == {"Running to Suspended": 1}


async def test_reconcile_leaves_alone_what_an_action_works_on(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("hang", verb="reboot", seconds=600)
    ticket = await user.admitted(user.mci(), "reboot")
    await user.until_delayed(user.vm("aws-1"), user.vm("aws-2"))
    await meddle(user, "aws-1", "stopped")
    assert (await reconcile(user)).changes == {}
    await meddle(user, "aws-1", "running")
    await user.heal_faults()
    await user.asking.wait_for_outcome(ticket.path, ticket.run)
    await user.books_agree()


async def test_two_reads_at_once_are_one(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("slow", verb="describe", seconds=0.3, times=2)
    first, second = await asyncio.gather(refresh(user), refresh(user))
    assert first == second


async def test_an_mci_and_its_vms_tell_what_is_being_done_to_them_and_what_they_will_be(
    user: User, patient: None
) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("hang", verb="suspend", seconds=600)
    ticket = await user.admitted(user.mci(), "suspend")
    seen = await user.see(user.mci())
    told = mci_document(seen, seen.members)
    for document in (told, *told["vms"]):
        assert (document["target_action"], document["target_status"]) == ("Suspend", "Suspended")
    await user.asking.cancel_action(user.mci())
    await user.asking.wait_for_outcome(ticket.path, ticket.run)
