"""Accounts, cloudspaces, nodes and images: what an action does to their parts, and what is refused because of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from domain.model import ActionEnding, ActionResult, BeginRequest, Request
from tests.test_machines.site import MachineSite

pytestmark = pytest.mark.stores("postgres")


async def test_deleting_a_cloudspace_is_refused_while_machines_live_in_it_unless_cascading(site: MachineSite) -> None:
    await site.with_machine("a", "b")
    await site.seed(site.machine("a"), "add-disk", disk="d1")
    told = await site.refused(site.space(), "delete")
    assert told.endswith(f"{site.machine('a')}, {site.machine('b')} live in it")
    assert await site.to(site.space(), "delete", cascade=True) == "DELETED"
    assert [await site.status(site.machine(name)) for name in "ab"] == ["DELETED"] * 2
    assert await site.status(site.disk()) == "TOBEDELETED"
    await site.at_rest()
    # Nothing comes back under a parent that is in the bin.
    assert f"{site.space()} is DELETED" in await site.refused(site.machine("a"), "restore")
    assert await site.to(site.space(), "restore") == "DEPLOYED"


async def test_a_cloudspace_comes_back_with_the_machines_and_disks_that_went_with_it(site: MachineSite) -> None:
    await site.with_machine("a", "b", "gone")
    await site.seed(site.machine("a"), "add-disk", disk="d1")
    draft = site.machine("draft")
    await site.seed(draft, "create", image=site.name, virtual=True)
    await site.seed(site.machine("gone"), "add-disk", disk="d2")
    await site.to(site.machine("gone"), "delete")
    await site.to(site.space(), "delete", cascade=True)
    assert await site.status(draft) == "VIRTUAL"  # a record alone stays with its cloudspace
    await site.at_rest()
    assert await site.to(site.space(), "restore") == "DEPLOYED"
    assert [await site.status(site.machine(name)) for name in "ab"] == ["HALTED"] * 2
    assert await site.status(site.disk("d1")) == "ASSIGNED"
    for path in (site.space(), site.machine("a"), site.disk("d1")):
        assert {"bin", "until"}.isdisjoint((await site.see(path)).info)
    # What was in the bin before stays there.
    assert [await site.status(path) for path in (site.machine("gone"), site.disk("d2"))] == [
        "DELETED",
        "TOBEDELETED",
    ]
    await site.at_rest()
    assert await site.to(site.machine("a"), "start") == "RUNNING"


async def test_a_cloudspace_whose_machine_cannot_come_back_stays_in_the_bin_until_it_can(site: MachineSite) -> None:
    await site.with_machine("a", "b")
    await site.to(site.space(), "delete", cascade=True)
    await site.fault("fail", site.machine("b"), verb="restore", times=1)
    assert (await site.do(site.space(), "restore")).status == "DELETED"
    await site.at_rest()
    assert await site.to(site.space(), "restore") == "DEPLOYED"
    assert [await site.status(site.machine(name)) for name in "ab"] == ["HALTED"] * 2
    await site.at_rest()


async def test_a_paused_cloudspace_is_reset_by_an_administrator_but_not_in_a_disabled_account(
    site: MachineSite,
) -> None:
    await site.with_space()
    await site.to(site.space(), "pause")
    assert await site.to(site.space(), "reset") == "DEPLOYED"
    await site.to(site.account, "disable")
    assert f"{site.account} is DISABLED" in await site.refused(site.space(), "reset")
    await site.at_rest()


async def test_an_account_remembers_what_it_paused_also_when_a_second_worker_goes_on(site: MachineSite) -> None:
    """The first one died when all cloudspaces were paused and nothing was known of it yet."""
    await site.with_space()
    inventory, at = site.service.inventory, datetime.now(UTC)
    asked = Request(path=site.account, action="disable", requested_by="tester")
    grant = (await inventory.begin_action(BeginRequest(request=asked, run=f"run-{site.name}", at=at))).grant
    assert grant
    assert (await site.at_work("operate", grant)).info == {"paused": [site.space()]}
    assert (await site.at_work("operate", grant)).info == {"paused": [site.space()]}
    await inventory.finish_action(
        ActionEnding(epoch=grant.epoch, run=grant.run, path=grant.path, result=ActionResult.SUCCEEDED, at=at)
    )


async def test_destroying_a_cloudspace_takes_what_is_in_the_bin_with_it(site: MachineSite) -> None:
    await site.with_machine("a")
    await site.seed(site.machine("a"), "add-disk", disk="d1")
    await site.to(site.space(), "delete", cascade=True)
    assert await site.to(site.space(), "destroy") == "DESTROYED"
    assert [await site.status(path) for path in (site.machine("a"), site.disk())] == ["DESTROYED"] * 2
    await site.at_rest()


async def test_a_member_that_fails_fails_the_whole_and_goes_back_while_the_others_are_done(site: MachineSite) -> None:
    await site.with_machine("a", "b")
    await site.fault("fail", site.machine("b"), verb="delete", message="disk on fire")
    outcome = await site.do(site.space(), "delete", cascade=True)
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "DEPLOYED")
    assert "disk on fire" in outcome.message
    assert [await site.status(site.machine(name)) for name in "ab"] == ["DELETED", "RUNNING"]
    await site.heal_faults()
    await site.at_rest()  # the one that failed was stopped, and started again
    assert await site.to(site.space(), "delete", cascade=True) == "DELETED"


async def test_disabling_an_account_stops_its_machines_and_pauses_its_cloudspaces(site: MachineSite) -> None:
    await site.with_machine("a", "b")
    await site.to(site.machine("b"), "pause")
    await site.seed(site.space("other"), "create")
    await site.to(site.space("other"), "disable")
    assert await site.to(site.account, "disable") == "DISABLED"
    assert [await site.status(site.machine(name)) for name in "ab"] == ["HALTED"] * 2
    assert [await site.status(site.space(name)) for name in ("dev", "other")] == ["PAUSED", "DISABLED"]
    await site.at_rest()
    assert f"{site.account} is DISABLED" in await site.refused(site.machine("a"), "start")
    assert await site.to(site.account, "enable") == "CONFIRMED"
    assert [await site.status(site.machine(name)) for name in "ab"] == ["HALTED"] * 2  # these are not started
    assert [await site.status(site.space(name)) for name in ("dev", "other")] == ["DEPLOYED", "DISABLED"]
    await site.at_rest()


async def test_an_account_goes_with_everything_in_it_only_if_that_is_meant(site: MachineSite) -> None:
    await site.with_machine("a")
    await asyncio.gather(site.seed(site.machine("a"), "add-disk", disk="d1"), site.seed(site.disk("d2"), "create"))
    for action in ("delete", "destroy"):
        assert "live in it" in await site.refused(site.account, action)
    assert await site.to(site.account, "delete", cascade=True) == "DELETED"
    everything = [site.machine("a"), site.space(), site.disk("d2"), site.disk("d1")]
    assert [await site.status(path) for path in everything] == ["DELETED"] * 3 + ["TOBEDELETED"]
    await site.at_rest()
    assert f"{site.account} is DELETED" in await site.refused(site.space(), "restore")
    assert await site.to(site.account, "destroy") == "DESTROYED"
    assert [await site.status(path) for path in everything] == ["DESTROYED"] * 4
    await site.at_rest()


async def test_maintenance_moves_machines_and_they_stay_where_they_went(site: MachineSite) -> None:
    await site.with_machine("a", "b", nodes=2)
    await site.to(site.machine("b"), "pause")
    assert await site.to(site.node(1), "maintain") == "MAINTENANCE"
    seen = [await site.see(site.machine(name)) for name in "ab"]
    assert [view.status for view in seen] == ["RUNNING", "PAUSED"]
    assert f"{site.name}-1" not in {view.info["node"] for view in seen}
    assert await site.to(site.node(1), "enable") == "ENABLED"
    assert [await site.status(site.machine(name)) for name in "ab"] == ["RUNNING", "PAUSED"]
    await site.at_rest()


async def test_maintenance_by_stopping_remembers_which_machines_to_start_again(site: MachineSite) -> None:
    await site.with_machine("a", "b", "c")
    await site.to(site.machine("b"), "stop")  # by its user: it is not started again
    assert await site.to(site.node(1), "maintain", mode="stop") == "MAINTENANCE"
    assert [await site.status(site.machine(name)) for name in "abc"] == ["HALTED"] * 3
    outcome = await site.do(site.machine("a"), "start")  # refused by the hypervisor: its node is in maintenance
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "HALTED")
    assert "is in maintenance" in outcome.message
    await site.to(site.machine("c"), "delete")  # meanwhile its user did something else with it
    assert await site.to(site.node(1), "enable") == "ENABLED"
    assert [await site.status(site.machine(name)) for name in "abc"] == ["RUNNING", "HALTED", "DELETED"]
    await site.at_rest()


async def test_maintenance_without_room_elsewhere_is_refused_unless_machines_may_be_stopped(site: MachineSite) -> None:
    huge = 4096  # more than any other test's node has
    await site.with_node(1, memory=huge)
    await site.with_space()
    await site.seed(site.image, "create")
    await site.to(site.machine(), "create", image=site.name, memory=huge, node=f"{site.name}-1")
    refusal = await site.refused(site.node(1), "maintain")
    assert f"no other node has room for 1 of 1 running machine of node {site.name}-1" in refusal
    assert [await site.status(path) for path in (site.machine(), site.node(1))] == ["RUNNING", "ENABLED"]
    assert await site.to(site.node(1), "maintain", mode="move-or-stop") == "MAINTENANCE"
    assert await site.status(site.machine()) == "HALTED"
    assert await site.to(site.node(1), "enable") == "ENABLED"
    assert await site.status(site.machine()) == "RUNNING"


async def test_maintenance_that_finds_no_room_any_more_fails_and_stops_nothing(site: MachineSite) -> None:
    await site.with_machine("a", nodes=2)
    await site.fault("fail", site.machine("a"), verb="migrate", times=20)
    outcome = await site.do(site.node(1), "maintain")
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "ENABLED")
    assert "cannot be cleared from the node" in outcome.message
    assert await site.status(site.machine("a")) == "RUNNING"
    await site.at_rest()


async def test_maintenance_waits_for_a_machine_that_its_user_works_on(site: MachineSite) -> None:
    await site.with_machine("a", nodes=2)
    await site.hang(site.machine("a"), "reboot")
    reboot = await site.admitted(site.machine("a"), "reboot")
    await site.hanging(site.machine("a"))
    maintain = await site.admitted(site.node(1), "maintain")
    await site.release()
    assert (await site.outcome(maintain)).status == "MAINTENANCE"
    assert (await site.outcome(reboot)).result is ActionResult.SUCCEEDED
    assert (await site.hypervisor.list_carried_out_verbs(site.machine("a")))[1:] == ["reboot", "migrate"]


async def test_decommission_moves_everything_away_and_the_node_is_gone(site: MachineSite) -> None:
    await site.with_machine("a", "b", nodes=2)
    await site.to(site.machine("b"), "stop")
    assert await site.to(site.node(1), "decommission") == "DECOMMISSIONED"
    assert [await site.status(site.machine(name)) for name in "ab"] == ["RUNNING", "HALTED"]
    assert await site.to(site.machine("b"), "start") == "RUNNING"
    await site.at_rest()


async def test_decommission_that_cannot_move_a_machine_fails_and_the_node_stays_in_use(site: MachineSite) -> None:
    await site.with_machine("a", nodes=2)
    await site.fault("fail", site.machine("a"), verb="migrate", message="no way")
    outcome = await site.do(site.node(1), "decommission")
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "ENABLED")
    assert "no way" in outcome.message
    await site.heal_faults()
    await site.at_rest()


async def test_an_image_in_use_is_not_destroyed_and_a_disabled_one_not_used(site: MachineSite) -> None:
    await site.with_machine()
    for action in ("destroy", "delete"):
        assert f"it is in use by {site.machine()}" in await site.refused(site.image, action)
    await site.to(site.image, "disable")
    assert f"{site.image} is DISABLED" in await site.refused(site.machine("new"), "create", image=site.name)
    await site.to(site.machine(), "delete")
    assert "it is in use" in await site.refused(site.image, "destroy")  # it may be restored
    await site.to(site.machine(), "destroy")
    assert await site.to(site.image, "destroy") == "DESTROYED"
    await site.at_rest()
