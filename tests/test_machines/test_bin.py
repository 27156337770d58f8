"""The recycle bin: one clock per tenant, names reserved meanwhile, and whatever can go wrong at the end of a stay."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import TimeSkipper

from domain import wire
from domain.healing import Finding, Sweep
from domain.machines import BIN_ROLE
from domain.machines.model import BinQuery
from domain.machines.rules import stamp, tenant_of
from domain.model import Finding as Broken
from domain.model import Query, Verification
from store.bins import SqlBin
from store.schema import objects
from tests.patience import PATIENCE
from tests.test_machines.estate import Estate

pytestmark = pytest.mark.stores("postgres")


class Clock:
    """The clock of the bin that an object goes to, and its own time."""

    def __init__(self, estate: Estate, path: str) -> None:
        client = estate.asking.client
        self.handle = client.get_workflow_handle(wire.companion(tenant_of(path), BIN_ROLE))
        self._skipper = TimeSkipper(client)

    async def skip(self, **time: float) -> bool:
        """Let so much time pass. True: it passed, and the clock still runs or has just ended."""
        return await self._skipper.fast_forward(self.handle, timedelta(**time))

    async def status(self) -> WorkflowExecutionStatus | None:
        return (await self.handle.describe()).status


async def failed(estate: Estate, path: str) -> None:
    """Until an action on it has failed."""
    async with asyncio.timeout(PATIENCE):
        while not (await estate.history(path))[-1].message.startswith("failed"):
            await asyncio.sleep(0.01)


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
    await clock.handle.result()  # the bin is empty
    assert [await estate.status(path) for path in (db, estate.disk())] == ["DESTROYED"] * 2
    last = (await estate.history(db))[-1]
    assert (last.action, last.requested_by, last.reason) == ("destroy", "recycle bin", "its retention is over")
    assert await estate.to(db, "create", image=estate.name, node=f"{estate.name}-1") == "RUNNING"  # and free again
    await estate.at_rest()


async def test_every_kind_that_can_be_deleted_is_destroyed_in_its_time(estate: Estate) -> None:
    await estate.with_space()
    await estate.seed(estate.disk(), "create")
    await estate.seed(estate.image, "create")
    for path in (estate.disk(), estate.space(), estate.account, estate.image):
        assert await estate.to(path, "delete") == "DELETED"
        await Clock(estate, path).skip(days=7, seconds=2)
        await estate.until(path, "DESTROYED")
    await estate.at_rest()


async def test_what_belongs_to_no_account_has_a_bin_of_its_own(estate: Estate) -> None:
    assert tenant_of(estate.image) == "image"
    assert tenant_of(estate.machine()) == tenant_of(estate.disk()) == tenant_of(estate.account) == estate.account


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
        await clock.handle.result()
        assert await estate.status(disk) == "DESTROYED"


async def test_what_is_not_kept_at_all_is_destroyed_as_soon_as_it_is_in_the_bin(estate: Estate) -> None:
    await estate.with_account()
    await estate.seed(estate.disk(), "create")
    await estate.to(estate.disk(), "delete", retention_days=0)
    await estate.until(estate.disk(), "DESTROYED")
    await Clock(estate, estate.disk()).handle.result()


async def test_what_was_restored_and_deleted_again_stays_for_its_new_time(estate: Estate) -> None:
    await estate.with_account()
    disk = estate.disk()
    await estate.do(disk, "create")
    await estate.to(disk, "delete")
    clock = Clock(estate, disk)
    await clock.skip(days=6)
    assert await estate.to(disk, "restore") == "CREATED"
    assert {"bin", "until"}.isdisjoint((await estate.see(disk)).info)
    assert (await estate.to(disk, "delete", retention_days=14)) == "DELETED"
    await clock.skip(days=6)  # the first stay would be over
    assert await estate.status(disk) == "DELETED"
    await estate.to(disk, "destroy")
    await clock.skip(days=3)
    await clock.handle.result()  # it looked once more, and found an empty bin
    await estate.at_rest()


async def test_a_destroy_for_an_earlier_stay_is_refused(estate: Estate) -> None:
    """What the clock saw may be old by then: the number under which it was deleted is what counts."""
    await estate.with_account()
    disk = estate.disk()
    await estate.do(disk, "create")
    await estate.to(disk, "delete")
    number = (await estate.see(disk)).info["bin"]
    await estate.to(disk, "restore")
    told = f"{disk} is CREATED, not in the recycle bin under number {number}"
    assert await estate.refused(disk, "destroy", bin=number) == told
    await estate.to(disk, "delete")
    assert "not in the recycle bin under number" in await estate.refused(disk, "destroy", bin=number)
    assert await estate.status(disk) == "DELETED"


async def test_an_entry_that_is_due_while_the_object_is_busy_waits_its_turn(estate: Estate) -> None:
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


async def test_what_could_not_be_destroyed_is_tried_again(estate: Estate) -> None:
    await estate.with_account()
    disk = estate.disk()
    await estate.seed(disk, "create")
    await estate.to(disk, "delete")
    await estate.fault("fail", disk, verb="destroy", times=1)
    clock = Clock(estate, disk)
    await clock.skip(days=7, seconds=2)
    await failed(estate, disk)
    assert await estate.status(disk) == "DELETED"
    await clock.skip(minutes=1)
    await estate.until(disk, "DESTROYED")
    await clock.handle.result()


async def test_what_a_cascade_put_into_the_bin_is_destroyed_with_it_in_one_action(estate: Estate) -> None:
    await estate.with_machine("a", "b")
    await estate.to(estate.space(), "delete", cascade=True)
    clock = Clock(estate, estate.space())
    await clock.skip(days=8)
    await clock.handle.result()
    paths = (estate.space(), estate.machine("a"), estate.machine("b"))
    assert [await estate.status(path) for path in paths] == ["DESTROYED"] * 3
    asked = [line.requested_by for path in paths for line in (await estate.history(path))[-1:]]
    assert set(asked) == {"recycle bin"}
    assert len({(await estate.see(path)).epoch for path in paths}) == 1
    await estate.at_rest()


async def test_a_delete_that_fails_leaves_no_time_behind(estate: Estate) -> None:
    await estate.with_account()
    await estate.seed(estate.disk(), "create")
    await estate.fault("fail", estate.disk(), verb="delete", times=1)
    outcome = await estate.do(estate.disk(), "delete")
    assert outcome.status == "CREATED"
    assert {"bin", "until"}.isdisjoint((await estate.see(estate.disk())).info)
    query = BinQuery(tenant=estate.account, at=datetime.now(UTC) + timedelta(days=30), limit=10)
    seen = await SqlBin(estate.service.parts.database).due(query)
    assert (seen.due, seen.next, seen.waiting) == ([], None, False)


async def test_a_clock_that_was_ended_by_hand_is_named_by_verify_and_started_by_a_sweep(estate: Estate) -> None:
    await estate.with_account()
    await estate.seed(estate.disk(), "create")
    await estate.to(estate.disk(), "delete")
    assert await broken(estate) == []
    await Clock(estate, estate.disk()).handle.terminate("somebody's mistake")
    long_ago = stamp(datetime.now(UTC) - timedelta(hours=1))
    kept = {**(await estate.see(estate.disk())).info, "until": long_ago}
    late = sa.update(objects).where(objects.c.path == estate.disk()).values(info=kept)
    await estate.service.parts.database.run(lambda connection: connection.execute(late))
    clock = wire.companion(estate.account, BIN_ROLE)
    missing, overdue = await broken(estate)
    assert (missing.invariant, missing.path) == ("I12", estate.account)
    assert f"its recycle-bin clock does not run ({clock})" in missing.what
    assert (overdue.invariant, overdue.path) == ("I12", estate.disk())
    assert f"should have been done at {long_ago}" in overdue.what
    dry = await estate.asking.heal(Sweep(dry_run=True))
    assert Finding.WOULD_START in [found.finding for found in dry.found if found.path == clock]
    report = await estate.asking.heal(Sweep())
    assert [found.finding for found in report.found if found.path == clock] == [Finding.STARTED]
    await Clock(estate, estate.disk()).handle.result()
    assert await estate.status(estate.disk()) == "DESTROYED"
    assert await broken(estate) == []


async def broken(estate: Estate) -> list[Broken]:
    return (await estate.asking.read(wire.VERIFY, Query(path=estate.account), Verification)).findings
