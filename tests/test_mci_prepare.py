"""Preparation: shared resources are made once per connection, used by many MCIs, removed with the last."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from temporalio.api.enums.v1 import EventType

from domain import limits
from domain.errors import Category, Refused
from domain.faults import Fault, FaultKind
from domain.model import ActionResult
from domain.ports import SHARED_RESOURCE_TYPES
from providers.simulated.tables import resources
from store.mci.tables import connection_uses, connections
from tests.patience import PATIENCE, progress_of
from tests.test_crashes import MCI, site
from tests.test_platform.site import Site
from tests.user import User
from workflows import calls as provider_calls

pytestmark = pytest.mark.stores("postgres")

__all__ = ["site"]

EVERYTHING = set(SHARED_RESOURCE_TYPES)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is made twice because the machine is too busy for heartbeats."""
    monkeypatch.setattr(provider_calls, "HEARTBEAT", timedelta(seconds=PATIENCE))


async def users_of(user: User, place: str) -> list[str]:
    query = sa.select(connection_uses.c.path).where(connection_uses.c.place == place).order_by(connection_uses.c.path)
    return list(
        await user.service.database.run_transaction(lambda connection: connection.execute(query).scalars().all())
    )


async def nobody_holds(user: User) -> None:
    held = sa.select(connections.c.place).where(connections.c.holder != "")
    assert not await user.service.database.run_transaction(lambda connection: connection.execute(held).scalars().all())


async def until_shared(user: User, csp: str, region: str) -> None:
    """Until a call for what is shared in a region is in flight."""
    async with asyncio.timeout(PATIENCE):
        while not user.service.simulated[csp].current_concurrency().shared.get(region):
            await asyncio.sleep(0.01)


async def test_an_mci_goes_by_preparing_and_prepared_and_creating_to_running(user: User) -> None:
    outcome = await user.do(user.mci(), "create", spec=user.groups())
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "Running:2 (R:2/2)")
    assert [(line.actor, line.source, line.to) for line in await user.history(user.mci())] == [
        ("User", "None", "Preparing"),
        ("Controller", "Preparing", "Prepared"),
        ("Controller", "Prepared", "Creating"),
        ("Controller", "Creating", "Running"),
    ]


async def test_while_there_is_no_vm_the_phase_stands_bare(user: User, patient: None) -> None:
    await user.place_fault("hang", verb="prepare", seconds=600)
    ticket = await user.admitted(user.mci(), "create", spec=user.groups())
    seen = await user.see(user.mci())
    assert (seen.status, seen.members, seen.target_status) == ("Preparing", [], "Running")
    assert (await progress_of(user.asking, ticket.path, ticket.run)).phase == "Preparing"
    await user.asking.cancel_action(user.mci())
    await user.asking.wait_for_outcome(ticket.path, ticket.run)


async def test_a_network_a_security_group_and_a_key_are_made_in_this_order_before_any_vm(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups("aws", "gcp"))
    mine = sa.select(resources).where(resources.c.region == user.region()).order_by(resources.c.created)
    rows = await user.service.cloud_database.run_transaction(
        lambda connection: connection.execute(mine).mappings().all()
    )
    for csp in ("aws", "gcp"):
        made = [row for row in rows if row["csp"] == csp]
        assert [row["what"] for row in made] == ["vnet", "securityGroup", "sshKey"]
        first_vm = min(vms[0].created for path, vms in (await user.books()).items() if f":vm:{csp}-" in path)
        assert made[-1]["created"] < first_vm


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"region": "mars-1"}, "aws has no region 'mars-1'"),
        ({"specId": "gigantic"}, "has no spec 'gigantic'; it has small, medium"),
        ({"imageId": "ubuntu-24.40"}, "has no image 'ubuntu-24.40'; it has ubuntu-22.04"),
        ({"connectionName": "atlantis"}, "there is no connection 'atlantis'"),
    ],
)
async def test_what_the_cloud_does_not_offer_is_refused_and_nothing_is_kept_or_built(
    user: User, change: dict[str, Any], told: str
) -> None:
    bad = user.groups("aws", "gcp")
    bad["subGroups"][0] |= change
    ticket = await user.ask(user.mci(), "create", spec=bad)
    assert ticket.admission.refusal
    assert ticket.admission.refusal.category is Category.INVALID
    assert told in ticket.admission.refusal.message
    assert ticket.admission.refusal.hint
    with pytest.raises(Refused, match="there is no such MCI"):
        await user.see(user.mci())
    assert await user.shared("aws") == await user.shared("gcp") == {}
    assert await user.history(user.mci()) == []
    assert await users_of(user, f"gcp/{user.region()}") == []


async def test_every_mistake_is_named_at_once(user: User) -> None:
    bad = user.groups("aws", "gcp")
    bad["subGroups"][0]["specId"] = bad["subGroups"][1]["imageId"] = "nonsense"
    message = await user.refused(user.mci(), "create", spec=bad)
    assert f"aws/{user.region()} has no spec 'nonsense'" in message
    assert f"gcp/{user.region()} has no image 'nonsense'" in message


async def test_when_the_cloud_cannot_say_at_once_what_it_offers_the_preparation_asks_again_and_then_fails(
    user: User, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "VALIDATE_TIMEOUT", timedelta(seconds=3))
    await user.place_fault("hang", verb="validate", seconds=600)
    bad = user.groups()
    bad["subGroups"][0]["specId"] = "gigantic"
    ticket = await user.admitted(user.mci(), "create", spec=bad)
    await user.heal_faults()
    outcome = await user.asking.wait_for_outcome(ticket.path, ticket.run)
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "Failed")
    assert "has no spec 'gigantic'" in outcome.message
    assert await user.shared() == {}


async def test_a_connection_by_name_is_the_same_as_its_cloud_and_region(user: User) -> None:
    spec = {"subGroups": [{"name": "a", "connectionName": "aws-ap-northeast-2"}]}
    await user.do(user.mci(), "create", spec=spec)
    seen = await user.see(user.mci())
    assert seen.members[0].placement == "aws/ap-northeast-2"
    assert seen.spec["subGroups"][0] == {**spec["subGroups"][0], "csp": "aws", "region": "ap-northeast-2"}
    await user.do(user.mci(), "delete")


async def test_connections_are_prepared_side_by_side(user: User, patient: None) -> None:
    for csp in ("aws", "gcp"):
        await user.place_fault("hang", csp=csp, verb="prepare", vm="vnet", seconds=600)
    ticket = await user.admitted(user.mci(), "create", spec=user.groups("aws", "gcp"))
    await asyncio.gather(*(until_shared(user, csp, user.region()) for csp in ("aws", "gcp")))
    await user.asking.cancel_action(user.mci())
    await user.asking.wait_for_outcome(ticket.path, ticket.run)


@pytest.mark.usefixtures("unhurried")
async def test_one_preparation_per_connection_at_a_time_over_all_mcis_shared_and_reused(user: User) -> None:
    await user.place_fault("slow", verb="prepare", seconds=0.05)
    names = [f"m{n}" for n in range(6)]
    outcomes = await asyncio.gather(*(user.do(user.mci(name), "create", spec=user.groups()) for name in names))
    assert {outcome.status for outcome in outcomes} == {"Running:2 (R:2/2)"}
    assert await user.shared() == dict.fromkeys(SHARED_RESOURCE_TYPES, 1)
    assert user.service.simulated["aws"].peak_concurrency().shared[user.region()] == 1
    assert await users_of(user, f"aws/{user.region()}") == [user.mci(name) for name in names]
    await nobody_holds(user)


@pytest.mark.usefixtures("unhurried")
async def test_the_last_mci_takes_with_it_what_was_shared_and_not_before(user: User) -> None:
    for name in ("one", "two"):
        await user.do(user.mci(name), "create", spec=user.groups())
    await user.do(user.mci("one"), "delete")
    assert set(await user.shared()) == EVERYTHING
    await user.do(user.mci("two"), "delete")
    assert await user.shared() == {}
    await user.do(user.mci("three"), "create", spec=user.groups())
    assert await user.shared() == dict.fromkeys(SHARED_RESOURCE_TYPES, 1)


async def test_two_tenants_prepare_one_region_each_for_itself_and_the_last_vm_of_each_takes_its_own(user: User) -> None:
    other = replace(user, ns=f"{user.ns}b")
    for tenant in (user, other):
        await tenant.do(tenant.mci(), "create", spec=user.groups(size=1))
    assert await tenants_at(user) == Counter({f"ns:{user.ns}": 3, f"ns:{other.ns}": 3})
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert await tenants_at(user) == Counter({f"ns:{other.ns}": 3})
    assert (await other.do(other.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert await tenants_at(user) == Counter()


async def tenants_at(user: User) -> Counter[str]:
    """How many shared resources each tenant has in the test's region."""
    query = sa.select(resources.c.tenant).where(resources.c.region == user.region())
    return Counter(
        await user.service.database.run_transaction(lambda connection: connection.execute(query).scalars().all())
    )


async def test_some_come_while_others_go_and_nobody_waits_for_ever(user: User) -> None:
    await user.place_fault("slow", verb="release", seconds=0.1)
    await user.place_fault("slow", verb="prepare", seconds=0.1)
    async with asyncio.timeout(PATIENCE):
        await user.do(user.mci("m0"), "create", spec=user.groups())
        for n in range(3):
            going, coming = user.mci(f"m{n}"), [user.mci(f"m{n + 1}"), user.mci(f"n{n}")]
            works = [user.do(going, "delete"), *(user.do(path, "create", spec=user.groups()) for path in coming)]
            outcomes = await asyncio.gather(*works)
            assert {outcome.result for outcome in outcomes} == {ActionResult.SUCCEEDED}
            await user.do(user.mci(f"n{n}"), "delete")
    assert set(await user.shared()) == EVERYTHING
    assert user.service.simulated["aws"].peak_concurrency().shared[user.region()] == 1
    await nobody_holds(user)


async def test_a_connection_that_is_prepared_costs_nothing(user: User) -> None:
    await user.do(user.mci("one"), "create", spec=user.groups())
    await user.do(user.mci("two"), "create", spec=user.groups())
    history = await user.asking.client.get_workflow_handle(user.mci("two")).fetch_history()
    scheduled = [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    assert scheduled == ["operate_vms"]
    steps = [event for event in history.events if "WORKFLOW_TASK" not in EventType.Name(event.event_type)]
    assert len(steps) <= 13


async def test_a_failure_in_preparation_ends_in_failed_with_every_reason_and_leaves_nothing_new(user: User) -> None:
    await user.place_fault("fail", "aws", verb="prepare", vm="sshKey", message="too many keys")
    await user.place_fault("fail", "gcp", verb="prepare", vm="vnet", message="no more networks")
    outcome = await user.do(user.mci(), "create", spec=user.groups("aws", "gcp", "azure"))
    assert (outcome.result, outcome.status, outcome.done) == (ActionResult.FAILED, "Failed", 0)
    told = [trouble.error for trouble in outcome.troubles]
    assert told == [f"aws/{user.region()}: too many keys", f"gcp/{user.region()}: no more networks"]
    assert all(reason in outcome.message for reason in told)
    seen = await user.see(user.mci())
    assert (seen.members, seen.info["problems"]) == ([], told)
    for csp in ("aws", "gcp", "azure"):
        assert await user.shared(csp) == {}
    assert await user.books() == {}
    await user.heal_faults()
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert (await user.do(user.mci(), "create", spec=user.groups("aws", "gcp"))).status == "Running:4 (R:4/4)"


async def test_a_failed_preparation_leaves_alone_what_others_use(user: User) -> None:
    await user.do(user.mci("other"), "create", spec=user.groups())
    await user.place_fault("fail", "gcp", verb="prepare")
    assert (await user.do(user.mci(), "create", spec=user.groups("aws", "gcp"))).status == "Failed"
    assert set(await user.shared()) == EVERYTHING
    assert await users_of(user, f"aws/{user.region()}") == [user.mci("other")]


@pytest.mark.usefixtures("unhurried")
async def test_a_lost_answer_makes_no_second_network(user: User) -> None:
    await user.place_fault("lose-answer", verb="prepare", times=3)
    assert (await user.do(user.mci(), "create", spec=user.groups())).result is ActionResult.SUCCEEDED
    assert await user.shared() == {"vnet": 4, "securityGroup": 1, "sshKey": 1}


async def test_what_was_made_without_an_answer_is_removed_when_the_preparation_fails(user: User) -> None:
    await user.place_fault("lose-answer", verb="prepare", vm="securityGroup", times=1)
    await user.place_fault("fail", verb="prepare", vm="securityGroup", message="gone mad")
    assert (await user.do(user.mci(), "create", spec=user.groups())).status == "Failed"
    assert await user.shared() == {}


async def test_throttling_and_outages_of_a_preparation_are_waited_out(user: User) -> None:
    await user.place_fault("throttle", verb="prepare", times=2, retry_after=0.1)
    await user.place_fault("unavailable", verb="prepare", times=2)
    assert (await user.do(user.mci(), "create", spec=user.groups())).result is ActionResult.SUCCEEDED


async def test_a_creation_cancelled_while_it_prepares_is_undone(user: User, patient: None) -> None:
    await user.place_fault("hang", "gcp", verb="prepare", vm="sshKey", seconds=600)
    ticket = await user.admitted(user.mci(), "create", spec=user.groups("aws", "gcp"))
    await until_shared(user, "gcp", user.region())
    await user.asking.cancel_action(user.mci())
    outcome = await user.asking.wait_for_outcome(ticket.path, ticket.run)
    assert (outcome.result, outcome.status) == (ActionResult.CANCELLED, "Failed")
    assert await user.shared("aws") == await user.shared("gcp") == {}
    await nobody_holds(user)


async def test_a_delete_that_cannot_remove_what_is_shared_fails_and_can_be_repeated(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.place_fault("fail", verb="release", vm="vnet", message="still in use")
    outcome = await user.do(user.mci(), "delete")
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "Empty")
    assert "still in use" in outcome.message
    assert set(await user.shared()) == {"vnet"}
    await user.heal_faults()
    assert (await user.do(user.mci(), "delete")).status == "None"
    assert await user.shared() == {}


@pytest.mark.usefixtures("unhurried")
async def test_a_forced_delete_names_the_places_where_something_shared_may_be_left(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    outcome = await user.do(user.mci(), "delete", force=True)
    assert outcome.message.endswith(f"2 VMs may be left there, and what VMs share in aws/{user.region()}")
    assert await users_of(user, f"aws/{user.region()}") == []
    await user.do(user.mci("next"), "create", spec=user.groups())
    assert await user.shared() == dict.fromkeys(SHARED_RESOURCE_TYPES, 1), "what was left is used again"


async def test_an_mci_that_exists_is_refused_and_uses_nothing_more(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    assert "MCI exists already" in await user.refused(user.mci(), "create", spec=user.groups("gcp"))
    assert await user.shared("gcp") == {}
    assert await users_of(user, f"gcp/{user.region()}") == []


async def test_a_worker_killed_in_the_middle_of_a_preparation_is_replaced_and_nothing_is_made_twice(site: Site) -> None:
    async with site.worker():
        await site.cloud.add_fault(Fault(kind=FaultKind.HANG, verb="prepare", vm="securityGroup", times=1, seconds=30))
        running = asyncio.create_task(site.do(MCI, "create", 4))
        async with asyncio.timeout(PATIENCE):
            while len(await site.cloud.list_shared_resources()) < 1 or await site.cloud.list_faults():
                await asyncio.sleep(0.02)
    async with site.worker(), asyncio.timeout(PATIENCE):
        assert (await running).result is ActionResult.SUCCEEDED
    assert {what for _, what, _ in await site.cloud.list_shared_resources()} == EVERYTHING
    assert len(await site.cloud.list_shared_resources()) == len(SHARED_RESOURCE_TYPES)
    assert len(await site.cloud.list_all_vms()) == 4
