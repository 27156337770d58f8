"""Leftovers of a terminated creation without a record: a later sweep removes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.companions import CompanionReconciler
from activities.healing import HealingActivities
from activities.leftovers import LeftoverCleaner
from domain import wire
from domain.healing import ANY_ACTION, HealEntry, HealFinding, HealReport, Leftover, OpenRun, StuckItem, SweepOptions
from domain.invariants import VerificationReport
from domain.machines.ports import HypervisorOrder
from domain.model import ActionResult, ReadQuery
from tests.patience import PATIENCE
from tests.test_machines.site import MachineSite, left_node
from workers.settings import WorkerSettings

NOW = SweepOptions(limits={ANY_ACTION: 0})
CLEAR = SweepOptions(limits={ANY_ACTION: 0}, grace=0)


async def sweep_late(site: MachineSite, order: SweepOptions = CLEAR) -> list[HealEntry]:
    """What a sweep finds of this site, if everything was left long enough ago to be removed."""
    report = await site.asking.run_sweep(order)
    return [found for found in report.found if site.name in found.path]


async def sweep_soon(site: MachineSite) -> list[HealEntry]:
    """The same, if it has only just been left: statuses are restored, and nothing is removed."""
    return await sweep_late(site, NOW)


async def left_disk(site: MachineSite) -> str:
    """The same for a disk that a machine was given: it is attached outside, and unknown here."""
    await site.with_machine()
    db, disk = site.machine(), site.disk("late")
    await site.hang(disk, "attach")
    await site.admitted(db, "add-disk", disk="late")
    await site.hanging(disk)
    told, epoch = f"{disk}, as it came to be", (await site.see(db)).epoch
    await site.carry_out("attach", HypervisorOrder(disk, "disk", told, {"machine": db}, epoch))
    await site.asking.client.get_workflow_handle(db).terminate("an operator")
    await site.heal_faults()
    return disk


async def removing(site: MachineSite) -> tuple[str, asyncio.Task[list[HealEntry]]]:
    """A node that a sweep is about to remove: the order for it hangs."""
    node = await left_node(site)
    await sweep_soon(site)
    await site.hang(node, "decommission")
    sweeping = asyncio.create_task(sweep_late(site))
    await site.hanging(node)
    return node, sweeping


async def state(site: MachineSite, path: str) -> str:
    return (await site.hypervisor.describe_object(path)).state


@pytest.mark.stores("sqlite", "postgres")
@pytest.mark.parametrize(("make", "was"), [(left_node, "enabled"), (left_disk, "attached")], ids=["node", "disk"])
async def test_what_a_terminated_creation_left_outside_is_removed_by_a_later_sweep(
    site: MachineSite, make: Callable[[MachineSite], Awaitable[str]], was: str
) -> None:
    path = await make(site)
    [healed] = await sweep_late(site)  # the sweep that brings it back leaves it alone: a call may be on its way
    assert (healed.finding, await state(site, path)) == (HealFinding.HEALED, was)
    assert await sweep_soon(site) == []  # and so do all within the time of grace, whatever the other limits are
    [would] = await sweep_late(site, CLEAR.model_copy(update={"dry_run": True}))
    assert (would.path, would.finding, await state(site, path)) == (path, HealFinding.WOULD_REMOVE, was)
    [gone] = await sweep_late(site)
    assert (gone.path, gone.finding, gone.to) == (path, HealFinding.REMOVED, "None")
    assert gone.provider == f"was {was} at the hypervisor, and was removed"
    assert await state(site, path) == "absent"
    assert await sweep_late(site) == []  # once
    last = (await site.history(path))[-1]
    assert (last.action, last.to, last.message) == ("discard", "None", f"succeeded: {gone.provider}")
    found = await site.asking.run_query(
        wire.VERIFY_ACTIVITY, ReadQuery(path=path), VerificationReport, seconds=PATIENCE
    )
    assert found.findings == []
    await site.at_rest()


async def test_what_is_left_of_a_creation_that_the_next_request_abandoned_is_removed_as_well(site: MachineSite) -> None:
    node = await left_node(site)
    assert "there is no such node" in await site.refused(node, "maintain")  # which brought it back
    [gone] = await sweep_late(site)
    assert (gone.finding, await state(site, node)) == (HealFinding.REMOVED, "absent")


async def test_what_was_asked_for_again_meanwhile_is_never_removed(site: MachineSite) -> None:
    node = await left_node(site)
    await sweep_soon(site)
    assert await site.to(node, "create", memory=10) == "ENABLED"
    assert await sweep_late(site) == []
    assert "exists already, under ENABLED" in await site.refused(node, "discard")
    assert await state(site, node) == "enabled"


async def test_a_creation_that_has_begun_keeps_the_removal_out_and_the_other_way_round(site: MachineSite) -> None:
    node = await left_node(site)
    await sweep_soon(site)
    leftovers = await site.service.inventory.list_leftovers()
    await site.hang(node, "create")
    create = await site.admitted(node, "create", memory=10)
    client = site.asking.client
    healing = HealingActivities(client, Outdated(leftovers), CompanionReconciler(client))  # type: ignore[arg-type]
    [left] = (await ActivityEnvironment().run(healing.sweep, CLEAR)).found
    assert (left.finding, left.message) == (HealFinding.LEFT, "another action is under way there")
    await site.release()
    assert (await site.outcome(create)).status == "ENABLED"
    [left] = (await ActivityEnvironment().run(healing.sweep, CLEAR)).found
    assert (left.finding, left.message) == (HealFinding.LEFT, "node exists already, under ENABLED")
    assert await state(site, node) == "enabled"


async def test_who_asks_for_it_while_it_is_removed_is_told_to_wait(site: MachineSite) -> None:
    node, sweeping = await removing(site)
    assert "409 Conflict" in await site.refused(node, "create", memory=10)
    await site.release()
    assert [found.finding for found in await sweeping] == [HealFinding.REMOVED]
    assert await site.to(node, "create", memory=10) == "ENABLED"
    assert await state(site, node) == "enabled"


@pytest.mark.stores("sqlite", "postgres")
async def test_a_removal_that_fails_is_told_and_tried_again(site: MachineSite) -> None:
    node = await left_node(site)
    await sweep_soon(site)
    await site.fault("fail", node, verb="decommission", message="out of order")
    [left] = await sweep_late(site)
    assert (left.finding, "out of order" in left.provider) == (HealFinding.LEFT, True)
    await site.heal_faults()
    [gone] = await sweep_late(site)
    assert (gone.finding, await state(site, node)) == (HealFinding.REMOVED, "absent")


async def test_what_a_creation_could_not_undo_is_removed_as_well(site: MachineSite) -> None:
    node = f"node:{site.name}-late"
    await site.hypervisor.perform_order(
        "create", HypervisorOrder(node, "node", f"{node}, as it came to be", {"memory": 10})
    )
    for verb in ("create", "describe"):
        await site.fault("fail", node, verb=verb, message="out of order")
    outcome = await site.do(node, "create", memory=10)
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "None")
    assert "could not be restored" in outcome.message
    await site.heal_faults()
    [gone] = await sweep_late(site)
    assert (gone.action, gone.finding, await state(site, node)) == ("create", HealFinding.REMOVED, "absent")
    assert await sweep_late(site) == []


async def test_a_removal_that_is_terminated_itself_is_made_up_for(site: MachineSite) -> None:
    node, sweeping = await removing(site)
    await site.asking.client.get_workflow_handle(node).terminate("an operator")
    assert [found.finding for found in await sweeping] == [HealFinding.LEFT]
    await site.heal_faults()
    assert [found.finding for found in await sweep_late(site)] == [HealFinding.HEALED]
    assert [found.finding for found in await sweep_late(site)] == [HealFinding.REMOVED]
    assert await state(site, node) == "absent"


async def test_a_disk_goes_only_while_nobody_is_at_its_machine(site: MachineSite) -> None:
    disk, db = await left_disk(site), site.machine()
    await sweep_soon(site)
    await site.hang(db, "pause")
    pause = await site.admitted(db, "pause")
    [left] = [found for found in await sweep_late(site) if found.path == disk]
    assert (left.finding, "409 Conflict" in left.message, db in left.message) == (HealFinding.LEFT, True, True)
    await site.release()
    assert (await site.outcome(pause)).result is ActionResult.SUCCEEDED
    [gone] = await sweep_late(site)
    assert (gone.finding, await state(site, disk)) == (HealFinding.REMOVED, "absent")


class Outdated:
    """An inventory as a sweep saw it a moment ago: since then somebody was quicker."""

    def __init__(self, leftovers: list[Leftover]) -> None:
        self._leftovers = leftovers

    async def list_leftovers(self) -> list[Leftover]:
        return self._leftovers

    async def list_stuck_items(self, before: datetime) -> list[StuckItem]:
        return []

    async def filter_lost_runs(self, runs: list[OpenRun], before: datetime) -> list[str]:
        return []

    async def forget_expired(self, now: datetime) -> int:
        return 0

    async def save_heal_report(self, report: HealReport) -> HealReport:
        return report


class _OneLeft:
    """An inventory that tells of one node, left at a time."""

    def __init__(self, since: datetime) -> None:
        self._left = Leftover(path="node:late", action="enlist", since=since)

    async def list_leftovers(self) -> list[Leftover]:
        return [self._left]


@pytest.mark.parametrize(
    ("limit", "age", "due"), [(600.0, 601, False), (600.0, 1201, True), (1300.0, 1201, False), (1300.0, 1301, True)]
)
async def test_nothing_is_removed_while_an_order_to_make_it_may_be_on_its_way(
    limit: float, age: float, due: bool
) -> None:
    at = datetime.now(UTC)
    life = WorkerSettings().order_lifetime()
    assert life == 1200.0, "by default: all tries, and the last call"
    inventory = _OneLeft(at - timedelta(seconds=age))
    leftovers = LeftoverCleaner(None, inventory, {ANY_ACTION: limit}, order_life=life)  # type: ignore[arg-type]
    assert bool(await leftovers.list_due_leftovers(SweepOptions(), at)) is due
