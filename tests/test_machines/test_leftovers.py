"""What a creation left outside that was terminated, and of which no record stayed: a later sweep removes it, safely."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.healing import Healing
from activities.leftovers import Leftovers
from domain import wire
from domain.healing import ANY, Finding, Found, HealReport, Leftover, Suspect, Sweep
from domain.machines.port import Order
from domain.model import Query, Result, Verification
from tests.test_machines.estate import Estate, left_node
from workers.settings import Settings

NOW = Sweep(limits={ANY: 0})
CLEAR = Sweep(limits={ANY: 0}, grace=0)


async def cleared(estate: Estate, order: Sweep = CLEAR) -> list[Found]:
    """A sweep that finds it long enough ago."""
    report = await estate.asking.heal(order)
    return [found for found in report.found if estate.name in found.path]


async def swept(estate: Estate) -> list[Found]:
    """A sweep that brings back, and leaves alone what has only just been left."""
    return await cleared(estate, NOW)


async def left_disk(estate: Estate) -> str:
    """The same for a disk that a machine was given: it is attached outside, and unknown here."""
    await estate.with_machine()
    db, disk = estate.machine(), estate.disk("late")
    await estate.hang(disk, "attach")
    await estate.admitted(db, "add-disk", disk="late")
    await estate.hanging(disk)
    told, epoch = f"{disk}, as it came to be", (await estate.see(db)).epoch
    await estate.hypervisor.perform("attach", Order(disk, "disk", told, {"machine": db}, epoch))
    await estate.asking.client.get_workflow_handle(db).terminate("an operator")
    await estate.heal_faults()
    return disk


async def removing(estate: Estate) -> tuple[str, asyncio.Task[list[Found]]]:
    """A node that a sweep is about to remove: the order for it hangs."""
    node = await left_node(estate)
    await swept(estate)
    await estate.hang(node, "decommission")
    sweeping = asyncio.create_task(cleared(estate))
    await estate.hanging(node)
    return node, sweeping


async def state(estate: Estate, path: str) -> str:
    return (await estate.hypervisor.describe(path)).state


@pytest.mark.stores("sqlite", "postgres")
@pytest.mark.parametrize(("make", "was"), [(left_node, "enabled"), (left_disk, "attached")], ids=["node", "disk"])
async def test_what_a_terminated_creation_left_outside_is_removed_by_a_later_sweep(
    estate: Estate, make: Callable[[Estate], Awaitable[str]], was: str
) -> None:
    path = await make(estate)
    [healed] = await cleared(estate)  # the sweep that brings it back leaves it alone: a call may be on its way
    assert (healed.finding, await state(estate, path)) == (Finding.HEALED, was)
    assert await swept(estate) == []  # and so do all within the time of grace, whatever the other limits are
    [would] = await cleared(estate, CLEAR.model_copy(update={"dry_run": True}))
    assert (would.path, would.finding, await state(estate, path)) == (path, Finding.WOULD_REMOVE, was)
    [gone] = await cleared(estate)
    assert (gone.path, gone.finding, gone.to) == (path, Finding.REMOVED, "None")
    assert gone.provider == f"was {was} at the hypervisor, and was removed"
    assert await state(estate, path) == "absent"
    assert await cleared(estate) == []  # once
    last = (await estate.history(path))[-1]
    assert (last.action, last.to, last.message) == ("discard", "None", f"succeeded: {gone.provider}")
    found = await estate.asking.read(wire.VERIFY, Query(path=path), Verification, seconds=60)
    assert found.findings == []
    await estate.at_rest()


async def test_what_is_left_of_a_creation_that_the_next_request_buried_is_removed_as_well(estate: Estate) -> None:
    node = await left_node(estate)
    assert "there is no such node" in await estate.refused(node, "maintain")  # which brought it back
    [gone] = await cleared(estate)
    assert (gone.finding, await state(estate, node)) == (Finding.REMOVED, "absent")


async def test_what_was_asked_for_again_meanwhile_is_never_removed(estate: Estate) -> None:
    node = await left_node(estate)
    await swept(estate)
    assert await estate.to(node, "create", memory=10) == "ENABLED"
    assert await cleared(estate) == []
    assert "exists already, under ENABLED" in await estate.refused(node, "discard")
    assert await state(estate, node) == "enabled"


async def test_a_creation_that_has_begun_keeps_the_removal_out_and_the_other_way_round(estate: Estate) -> None:
    node = await left_node(estate)
    await swept(estate)
    leftovers = await estate.service.inventory.leftovers()
    await estate.hang(node, "create")
    create = await estate.admitted(node, "create", memory=10)
    healing = Healing(estate.asking.client, Outdated(leftovers))  # type: ignore[arg-type]
    [left] = (await ActivityEnvironment().run(healing.sweep, CLEAR)).found
    assert (left.finding, left.message) == (Finding.LEFT, "another action is under way there")
    await estate.heal_faults()
    assert (await estate.outcome(create)).status == "ENABLED"
    [left] = (await ActivityEnvironment().run(healing.sweep, CLEAR)).found
    assert (left.finding, left.message) == (Finding.LEFT, "node exists already, under ENABLED")
    assert await state(estate, node) == "enabled"


async def test_who_asks_for_it_while_it_is_removed_is_told_to_wait(estate: Estate) -> None:
    node, sweeping = await removing(estate)
    assert "409 Conflict" in await estate.refused(node, "create", memory=10)
    await estate.heal_faults()
    assert [found.finding for found in await sweeping] == [Finding.REMOVED]
    assert await estate.to(node, "create", memory=10) == "ENABLED"
    assert await state(estate, node) == "enabled"


@pytest.mark.stores("sqlite", "postgres")
async def test_a_removal_that_fails_is_told_and_tried_again(estate: Estate) -> None:
    node = await left_node(estate)
    await swept(estate)
    await estate.fault("fail", node, verb="decommission", message="out of order")
    [left] = await cleared(estate)
    assert (left.finding, "out of order" in left.provider) == (Finding.LEFT, True)
    await estate.heal_faults()
    [gone] = await cleared(estate)
    assert (gone.finding, await state(estate, node)) == (Finding.REMOVED, "absent")


async def test_what_a_creation_could_not_undo_is_removed_as_well(estate: Estate) -> None:
    node = f"node:{estate.name}-late"
    await estate.hypervisor.perform("create", Order(node, "node", f"{node}, as it came to be", {"memory": 10}))
    for verb in ("create", "describe"):
        await estate.fault("fail", node, verb=verb, message="out of order")
    outcome = await estate.do(node, "create", memory=10)
    assert (outcome.result, outcome.status) == (Result.FAILED, "None")
    assert "could not be brought back" in outcome.message
    await estate.heal_faults()
    [gone] = await cleared(estate)
    assert (gone.action, gone.finding, await state(estate, node)) == ("create", Finding.REMOVED, "absent")
    assert await cleared(estate) == []


async def test_a_removal_that_is_terminated_itself_is_made_up_for(estate: Estate) -> None:
    node, sweeping = await removing(estate)
    await estate.asking.client.get_workflow_handle(node).terminate("an operator")
    assert [found.finding for found in await sweeping] == [Finding.LEFT]
    await estate.heal_faults()
    assert [found.finding for found in await cleared(estate)] == [Finding.HEALED]
    assert [found.finding for found in await cleared(estate)] == [Finding.REMOVED]
    assert await state(estate, node) == "absent"


async def test_a_disk_goes_only_while_nobody_is_at_its_machine(estate: Estate) -> None:
    disk, db = await left_disk(estate), estate.machine()
    await swept(estate)
    await estate.hang(db, "pause")
    pause = await estate.admitted(db, "pause")
    [left] = [found for found in await cleared(estate) if found.path == disk]
    assert (left.finding, "409 Conflict" in left.message, db in left.message) == (Finding.LEFT, True, True)
    await estate.heal_faults()
    assert (await estate.outcome(pause)).result is Result.SUCCEEDED
    [gone] = await cleared(estate)
    assert (gone.finding, await state(estate, disk)) == (Finding.REMOVED, "absent")


class Outdated:
    """An inventory as a sweep saw it a moment ago: since then somebody was quicker."""

    def __init__(self, leftovers: list[Leftover]) -> None:
        self._leftovers = leftovers

    async def leftovers(self) -> list[Leftover]:
        return self._leftovers

    async def suspects(self, before: datetime) -> list[Suspect]:
        return []

    async def keep_report(self, report: HealReport) -> HealReport:
        return report


class _OneLeft:
    """An inventory that tells of one node, left at a time."""

    def __init__(self, since: datetime) -> None:
        self._left = Leftover(path="node:late", action="enlist", since=since)

    async def leftovers(self) -> list[Leftover]:
        return [self._left]


@pytest.mark.parametrize(
    ("limit", "age", "due"), [(600.0, 601, False), (600.0, 1201, True), (1300.0, 1201, False), (1300.0, 1301, True)]
)
async def test_nothing_is_removed_while_an_order_to_make_it_may_be_on_its_way(
    limit: float, age: float, due: bool
) -> None:
    at = datetime.now(UTC)
    life = Settings().order_life()
    assert life == 1200.0, "by default: all tries, and the last call"
    inventory = _OneLeft(at - timedelta(seconds=age))
    leftovers = Leftovers(None, inventory, {ANY: limit}, order_life=life)  # type: ignore[arg-type]
    assert bool(await leftovers.due(Sweep(), at)) is due
