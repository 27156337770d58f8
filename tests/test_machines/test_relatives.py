"""Accounts, cloudspaces, nodes and images: what goes along, and what is refused because of others."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from domain.model import Claim, Ending, Request, Result
from tests.test_machines.estate import Estate

pytestmark = pytest.mark.stores("postgres")


async def test_deleting_a_cloudspace_is_refused_while_machines_live_in_it_unless_cascading(estate: Estate) -> None:
    await estate.with_machine("a", "b")
    await estate.seed(estate.machine("a"), "add-disk", disk="d1")
    told = await estate.refused(estate.space(), "delete")
    assert told.endswith(f"{estate.machine('a')}, {estate.machine('b')} live in it")
    assert await estate.to(estate.space(), "delete", cascade=True) == "DELETED"
    assert [await estate.status(estate.machine(name)) for name in "ab"] == ["DELETED"] * 2
    assert await estate.status(estate.disk()) == "TOBEDELETED"
    await estate.at_rest()
    # Nothing comes back under a parent that is in the bin.
    assert f"{estate.space()} is DELETED" in await estate.refused(estate.machine("a"), "restore")
    assert await estate.to(estate.space(), "restore") == "DEPLOYED"


async def test_a_cloudspace_comes_back_with_the_machines_and_disks_that_went_with_it(estate: Estate) -> None:
    await estate.with_machine("a", "b", "gone")
    await estate.seed(estate.machine("a"), "add-disk", disk="d1")
    draft = estate.machine("draft")
    await estate.seed(draft, "create", image=estate.name, virtual=True)
    await estate.seed(estate.machine("gone"), "add-disk", disk="d2")
    await estate.to(estate.machine("gone"), "delete")
    await estate.to(estate.space(), "delete", cascade=True)
    assert await estate.status(draft) == "VIRTUAL"  # a record alone stays with its cloudspace
    await estate.at_rest()
    assert await estate.to(estate.space(), "restore") == "DEPLOYED"
    assert [await estate.status(estate.machine(name)) for name in "ab"] == ["HALTED"] * 2
    assert await estate.status(estate.disk("d1")) == "ASSIGNED"
    for path in (estate.space(), estate.machine("a"), estate.disk("d1")):
        assert {"bin", "until"}.isdisjoint((await estate.see(path)).info)
    # What was in the bin before stays there.
    assert [await estate.status(path) for path in (estate.machine("gone"), estate.disk("d2"))] == [
        "DELETED",
        "TOBEDELETED",
    ]
    await estate.at_rest()
    assert await estate.to(estate.machine("a"), "start") == "RUNNING"


async def test_a_cloudspace_whose_machine_cannot_come_back_stays_in_the_bin_until_it_can(estate: Estate) -> None:
    await estate.with_machine("a", "b")
    await estate.to(estate.space(), "delete", cascade=True)
    await estate.fault("fail", estate.machine("b"), verb="restore", times=1)
    assert (await estate.do(estate.space(), "restore")).status == "DELETED"
    await estate.at_rest()
    assert await estate.to(estate.space(), "restore") == "DEPLOYED"
    assert [await estate.status(estate.machine(name)) for name in "ab"] == ["HALTED"] * 2
    await estate.at_rest()


async def test_a_paused_cloudspace_is_reset_by_an_administrator_but_not_in_a_disabled_account(estate: Estate) -> None:
    await estate.with_space()
    await estate.to(estate.space(), "pause")
    assert await estate.to(estate.space(), "reset") == "DEPLOYED"
    await estate.to(estate.account, "disable")
    assert f"{estate.account} is DISABLED" in await estate.refused(estate.space(), "reset")
    await estate.at_rest()


async def test_an_account_remembers_what_it_paused_also_when_a_second_worker_goes_on(estate: Estate) -> None:
    """The first one died when all cloudspaces were paused and nothing was known of it yet."""
    await estate.with_space()
    inventory, at = estate.service.inventory, datetime.now(UTC)
    asked = Request(path=estate.account, action="disable", requested_by="tester")
    grant = (await inventory.begin(Claim(request=asked, run=f"run-{estate.name}", at=at))).grant
    assert grant
    assert (await estate.at_work("operate", grant)).info == {"paused": [estate.space()]}
    assert (await estate.at_work("operate", grant)).info == {"paused": [estate.space()]}
    await inventory.finish(Ending(epoch=grant.epoch, run=grant.run, path=grant.path, result=Result.SUCCEEDED, at=at))


async def test_destroying_a_cloudspace_takes_what_is_in_the_bin_with_it(estate: Estate) -> None:
    await estate.with_machine("a")
    await estate.seed(estate.machine("a"), "add-disk", disk="d1")
    await estate.to(estate.space(), "delete", cascade=True)
    assert await estate.to(estate.space(), "destroy") == "DESTROYED"
    assert [await estate.status(path) for path in (estate.machine("a"), estate.disk())] == ["DESTROYED"] * 2
    await estate.at_rest()


async def test_a_member_that_fails_fails_the_whole_and_goes_back_while_the_others_are_done(estate: Estate) -> None:
    await estate.with_machine("a", "b")
    await estate.fault("fail", estate.machine("b"), verb="delete", message="disk on fire")
    outcome = await estate.do(estate.space(), "delete", cascade=True)
    assert (outcome.result, outcome.status) == (Result.FAILED, "DEPLOYED")
    assert "disk on fire" in outcome.message
    assert [await estate.status(estate.machine(name)) for name in "ab"] == ["DELETED", "RUNNING"]
    await estate.heal_faults()
    await estate.at_rest()  # the one that failed was stopped, and started again
    assert await estate.to(estate.space(), "delete", cascade=True) == "DELETED"


async def test_disabling_an_account_stops_its_machines_and_pauses_its_cloudspaces(estate: Estate) -> None:
    await estate.with_machine("a", "b")
    await estate.to(estate.machine("b"), "pause")
    await estate.seed(estate.space("other"), "create")
    await estate.to(estate.space("other"), "disable")
    assert await estate.to(estate.account, "disable") == "DISABLED"
    assert [await estate.status(estate.machine(name)) for name in "ab"] == ["HALTED"] * 2
    assert [await estate.status(estate.space(name)) for name in ("dev", "other")] == ["PAUSED", "DISABLED"]
    await estate.at_rest()
    assert f"{estate.account} is DISABLED" in await estate.refused(estate.machine("a"), "start")
    assert await estate.to(estate.account, "enable") == "CONFIRMED"
    assert [await estate.status(estate.machine(name)) for name in "ab"] == ["HALTED"] * 2  # these are not started
    assert [await estate.status(estate.space(name)) for name in ("dev", "other")] == ["DEPLOYED", "DISABLED"]
    await estate.at_rest()


async def test_an_account_goes_with_everything_in_it_only_if_that_is_meant(estate: Estate) -> None:
    await estate.with_machine("a")
    await asyncio.gather(
        estate.seed(estate.machine("a"), "add-disk", disk="d1"), estate.seed(estate.disk("d2"), "create")
    )
    for action in ("delete", "destroy"):
        assert "live in it" in await estate.refused(estate.account, action)
    assert await estate.to(estate.account, "delete", cascade=True) == "DELETED"
    everything = [estate.machine("a"), estate.space(), estate.disk("d2"), estate.disk("d1")]
    assert [await estate.status(path) for path in everything] == ["DELETED"] * 3 + ["TOBEDELETED"]
    await estate.at_rest()
    assert f"{estate.account} is DELETED" in await estate.refused(estate.space(), "restore")
    assert await estate.to(estate.account, "destroy") == "DESTROYED"
    assert [await estate.status(path) for path in everything] == ["DESTROYED"] * 4
    await estate.at_rest()


async def test_maintenance_moves_machines_and_they_stay_where_they_went(estate: Estate) -> None:
    await estate.with_machine("a", "b", nodes=2)
    await estate.to(estate.machine("b"), "pause")
    assert await estate.to(estate.node(1), "maintain") == "MAINTENANCE"
    seen = [await estate.see(estate.machine(name)) for name in "ab"]
    assert [view.status for view in seen] == ["RUNNING", "PAUSED"]
    assert f"{estate.name}-1" not in {view.info["node"] for view in seen}
    assert await estate.to(estate.node(1), "enable") == "ENABLED"
    assert [await estate.status(estate.machine(name)) for name in "ab"] == ["RUNNING", "PAUSED"]
    await estate.at_rest()


async def test_maintenance_by_stopping_remembers_which_machines_to_start_again(estate: Estate) -> None:
    await estate.with_machine("a", "b", "c")
    await estate.to(estate.machine("b"), "stop")  # by its user: it is not started again
    assert await estate.to(estate.node(1), "maintain", mode="stop") == "MAINTENANCE"
    assert [await estate.status(estate.machine(name)) for name in "abc"] == ["HALTED"] * 3
    outcome = await estate.do(estate.machine("a"), "start")  # refused by the hypervisor: its node is in maintenance
    assert (outcome.result, outcome.status) == (Result.FAILED, "HALTED")
    assert "is in maintenance" in outcome.message
    await estate.to(estate.machine("c"), "delete")  # meanwhile its user did something else with it
    assert await estate.to(estate.node(1), "enable") == "ENABLED"
    assert [await estate.status(estate.machine(name)) for name in "abc"] == ["RUNNING", "HALTED", "DELETED"]
    await estate.at_rest()


async def test_maintenance_stops_what_cannot_move(estate: Estate) -> None:
    huge = 4096  # more than any other test's node has
    await estate.with_node(1, memory=huge)
    await estate.with_space()
    await estate.seed(estate.image, "create")
    await estate.to(estate.machine(), "create", image=estate.name, memory=huge, node=f"{estate.name}-1")
    assert await estate.to(estate.node(1), "maintain") == "MAINTENANCE"
    assert await estate.status(estate.machine()) == "HALTED"
    assert await estate.to(estate.node(1), "enable") == "ENABLED"
    assert await estate.status(estate.machine()) == "RUNNING"


async def test_maintenance_waits_for_a_machine_that_its_user_works_on(estate: Estate) -> None:
    await estate.with_machine("a", nodes=2)
    await estate.hang(estate.machine("a"), "reboot", 1)
    reboot = await estate.admitted(estate.machine("a"), "reboot")
    await estate.hanging(estate.machine("a"))
    assert await estate.to(estate.node(1), "maintain") == "MAINTENANCE"
    assert (await estate.outcome(reboot)).result is Result.SUCCEEDED
    assert (await estate.hypervisor.told(estate.machine("a")))[1:] == ["reboot", "migrate"]


async def test_decommission_moves_everything_away_and_the_node_is_gone(estate: Estate) -> None:
    await estate.with_machine("a", "b", nodes=2)
    await estate.to(estate.machine("b"), "stop")
    assert await estate.to(estate.node(1), "decommission") == "DECOMMISSIONED"
    assert [await estate.status(estate.machine(name)) for name in "ab"] == ["RUNNING", "HALTED"]
    assert await estate.to(estate.machine("b"), "start") == "RUNNING"
    await estate.at_rest()


async def test_decommission_that_cannot_move_a_machine_fails_and_the_node_stays_in_use(estate: Estate) -> None:
    await estate.with_machine("a", nodes=2)
    await estate.fault("fail", estate.machine("a"), verb="migrate", message="no way")
    outcome = await estate.do(estate.node(1), "decommission")
    assert (outcome.result, outcome.status) == (Result.FAILED, "ENABLED")
    assert "no way" in outcome.message
    await estate.heal_faults()
    await estate.at_rest()


async def test_an_image_in_use_is_not_destroyed_and_a_disabled_one_not_used(estate: Estate) -> None:
    await estate.with_machine()
    for action in ("destroy", "delete"):
        assert f"it is in use by {estate.machine()}" in await estate.refused(estate.image, action)
    await estate.to(estate.image, "disable")
    assert f"{estate.image} is DISABLED" in await estate.refused(estate.machine("new"), "create", image=estate.name)
    await estate.to(estate.machine(), "delete")
    assert "it is in use" in await estate.refused(estate.image, "destroy")  # it may be restored
    await estate.to(estate.machine(), "destroy")
    assert await estate.to(estate.image, "destroy") == "DESTROYED"
    await estate.at_rest()
