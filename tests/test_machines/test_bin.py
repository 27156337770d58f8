"""The recycle bin: a durable timer per object, names reserved meanwhile, and whatever can go wrong at its end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import TimeSkipper

from domain import wire
from domain.machines import BIN, BIN_ROLE
from domain.machines.model import InBin
from tests.test_machines.estate import Estate

pytestmark = pytest.mark.stores("postgres")


class Clock:
    """The timer of one object, and its own time."""

    def __init__(self, estate: Estate, path: str) -> None:
        client = estate.asking.client
        self.handle = client.get_workflow_handle(wire.companion(path, BIN_ROLE))
        self._skipper = TimeSkipper(client)

    async def skip(self, **time: float) -> bool:
        """Let so much time pass. True: it passed, and the timer still runs or has just ended."""
        return await self._skipper.fast_forward(self.handle, timedelta(**time))

    async def status(self) -> WorkflowExecutionStatus | None:
        return (await self.handle.describe()).status


async def test_an_object_in_the_bin_is_destroyed_when_its_retention_is_over_and_not_before(estate: Estate) -> None:
    await estate.with_machine()
    db = estate.machine()
    await estate.seed(db, "add-disk", disk="d1")
    await estate.to(db, "delete")
    clock = Clock(estate, db)
    await clock.skip(days=6, hours=23)
    assert await estate.status(db) == "DELETED"
    assert await clock.status() is WorkflowExecutionStatus.RUNNING
    assert "exists already, under DELETED" in await estate.refused(db, "create", image=estate.name)  # name reserved
    await clock.skip(hours=2)
    assert await clock.handle.result() == "destroyed"
    assert [await estate.status(path) for path in (db, estate.disk())] == ["DESTROYED"] * 2
    last = (await estate.history(db))[-1]
    assert (last.action, last.requested_by, last.reason) == ("destroy", "recycle bin", "its retention is over")
    assert await estate.to(db, "create", image=estate.name, node=f"{estate.name}-1") == "RUNNING"  # and free again
    await estate.at_rest()


async def test_every_kind_that_can_be_deleted_has_its_timer(estate: Estate) -> None:
    await estate.with_space()
    await estate.seed(estate.disk(), "create")
    await estate.seed(estate.image, "create")
    for path in (estate.disk(), estate.space(), estate.account, estate.image):
        assert await estate.to(path, "delete") == "DELETED"
        clock = Clock(estate, path)
        await clock.skip(days=7, seconds=1)
        assert await clock.handle.result() == "destroyed"
        assert await estate.status(path) == "DESTROYED"
    await estate.at_rest()


async def test_the_retention_can_be_set_for_an_account_and_for_one_object(estate: Estate) -> None:
    await estate.do(estate.account, "create", retention_days=2)
    for name, more, days in [("d1", {}, 2.0), ("d2", {"retention_days": 0.5}, 0.5)]:
        disk = estate.disk(name)
        await estate.do(disk, "create")
        await estate.to(disk, "delete", **more)
        clock = Clock(estate, disk)
        await clock.skip(days=days - 0.1)
        assert await estate.status(disk) == "DELETED"
        await clock.skip(days=0.2)
        assert await clock.handle.result() == "destroyed"


async def test_restoring_ends_the_timer_and_deleting_again_begins_a_new_one(estate: Estate) -> None:
    await estate.with_account()
    disk = estate.disk()
    await estate.do(disk, "create")
    await estate.to(disk, "delete")
    clock = Clock(estate, disk)
    await clock.skip(days=6)
    assert await estate.to(disk, "restore") == "CREATED"
    assert (await estate.see(disk)).info.get("bin") is None
    assert (await estate.to(disk, "delete")) == "DELETED"
    await clock.skip(days=6)  # thirteen days after the first time
    assert await estate.status(disk) == "DELETED"
    await estate.to(disk, "destroy")
    await estate.at_rest()


async def test_a_timer_of_an_earlier_stay_destroys_nothing(estate: Estate) -> None:
    """Its cancel may have been lost: the number under which it was deleted is what counts."""
    await estate.with_account()
    disk = estate.disk()
    await estate.do(disk, "create")
    await estate.to(disk, "delete")
    number = (await estate.see(disk)).info["bin"]
    await estate.to(disk, "restore")
    stale = InBin(path=disk, number=number, seconds=0)
    client = estate.asking.client
    end = await client.execute_workflow(BIN, stale, id=f"{disk}::stale", task_queue=wire.ACTIONS_QUEUE)
    assert end == f"{disk} is CREATED, not in the recycle bin under number {number}"
    await estate.to(disk, "delete")
    assert "not in the recycle bin under number" in await estate.refused(disk, "destroy", bin=number)
    assert await estate.status(disk) == "DELETED"


async def test_a_timer_that_ends_while_the_object_is_busy_waits_its_turn(estate: Estate) -> None:
    await estate.with_account()
    disk = estate.disk()
    await estate.do(disk, "create")
    await estate.to(disk, "delete", retention_days=1)
    await estate.hang(disk, "restore", 1)
    restore = await estate.admitted(disk, "restore")
    await estate.hanging(disk)
    clock = Clock(estate, disk)
    await clock.skip(days=2)
    assert (await estate.outcome(restore)).status == "CREATED"
    assert await estate.status(disk) == "CREATED"
    await estate.at_rest()


async def test_what_a_cascade_puts_into_the_bin_has_timers_too(estate: Estate) -> None:
    await estate.with_machine("a", "b")
    await estate.to(estate.space(), "delete", cascade=True)
    await estate.to(estate.space(), "restore")  # the machines stay in the bin, each by itself
    clock = Clock(estate, estate.machine("a"))
    await clock.skip(days=8)
    assert await clock.handle.result() == "destroyed"
    assert [await estate.status(estate.machine(name)) for name in "ab"] == ["DESTROYED", "DELETED"]
    await estate.at_rest()
