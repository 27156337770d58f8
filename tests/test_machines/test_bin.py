"""The recycle bin: one clock per tenant, reserved names, and failures when an object is due."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import TimeSkipper

from domain import wire
from domain.healing import HealFinding, SweepOptions
from domain.invariants import InvariantViolation as Broken
from domain.invariants import VerificationReport
from domain.machines import BIN_ROLE
from domain.machines.messages import DueBinEntriesQuery
from domain.machines.rules import bin_tenant_of, format_sortable_time
from domain.model import ReadQuery
from store.machines.queries import SqlRecycleBin
from store.schema import objects
from tests.patience import PATIENCE
from tests.test_machines.site import MachineSite

pytestmark = pytest.mark.stores("postgres")


class Clock:
    """The clock of the bin that an object goes to, and its own time."""

    def __init__(self, site: MachineSite, path: str) -> None:
        client = site.asking.client
        self.handle = client.get_workflow_handle(wire.companion_id(bin_tenant_of(path), BIN_ROLE))
        self._skipper = TimeSkipper(client)

    async def skip(self, **time: float) -> bool:
        """Let so much time pass. True: it passed, and the clock still runs or has just ended."""
        return await self._skipper.fast_forward(self.handle, timedelta(**time))

    async def status(self) -> WorkflowExecutionStatus | None:
        return (await self.handle.describe()).status


async def failed(site: MachineSite, path: str) -> None:
    """Until an action on it has failed."""
    async with asyncio.timeout(PATIENCE):
        while not (await site.history(path))[-1].message.startswith("failed"):
            await asyncio.sleep(0.01)


async def test_an_object_in_the_bin_is_destroyed_when_its_retention_is_over_and_not_before(site: MachineSite) -> None:
    await site.with_machine()
    db = site.machine()
    await site.seed(db, "add-disk", disk="d1")
    await site.to(db, "delete")
    clock = Clock(site, db)
    await clock.skip(days=6, hours=23)
    assert await site.status(db) == "DELETED"
    assert await clock.status() is WorkflowExecutionStatus.RUNNING
    assert "exists already, under DELETED" in await site.refused(db, "create", image=site.name)  # name reserved
    await clock.skip(hours=2)
    await clock.handle.result()  # the bin is empty
    assert [await site.status(path) for path in (db, site.disk())] == ["DESTROYED"] * 2
    last = (await site.history(db))[-1]
    assert (last.action, last.requested_by, last.reason) == ("destroy", "recycle bin", "its retention is over")
    assert await site.to(db, "create", image=site.name, node=f"{site.name}-1") == "RUNNING"  # and free again
    await site.at_rest()


async def test_every_kind_that_can_be_deleted_is_destroyed_in_its_time(site: MachineSite) -> None:
    await site.with_space()
    await site.seed(site.disk(), "create")
    await site.seed(site.image, "create")
    for path in (site.disk(), site.space(), site.account, site.image):
        assert await site.to(path, "delete") == "DELETED"
        await Clock(site, path).skip(days=7, seconds=2)
        await site.until(path, "DESTROYED")
    await site.at_rest()


async def test_what_belongs_to_no_account_has_a_bin_of_its_own(site: MachineSite) -> None:
    assert bin_tenant_of(site.image) == "image"
    assert bin_tenant_of(site.machine()) == bin_tenant_of(site.disk()) == bin_tenant_of(site.account) == site.account


async def test_the_retention_can_be_set_for_an_account_and_for_one_object(site: MachineSite) -> None:
    await site.do(site.account, "create", retention_days=2)
    for name, more, days in [("d1", {}, 2.0), ("d2", {"retention_days": 0.5}, 0.5)]:
        disk = site.disk(name)
        await site.do(disk, "create")
        await site.to(disk, "delete", **more)
        clock = Clock(site, disk)
        await clock.skip(days=days - 0.1)
        assert await site.status(disk) == "DELETED"
        await clock.skip(days=0.2)
        await clock.handle.result()
        assert await site.status(disk) == "DESTROYED"


async def test_what_is_not_kept_at_all_is_destroyed_as_soon_as_it_is_in_the_bin(site: MachineSite) -> None:
    await site.with_account()
    await site.seed(site.disk(), "create")
    await site.to(site.disk(), "delete", retention_days=0)
    await site.until(site.disk(), "DESTROYED")
    await Clock(site, site.disk()).handle.result()


async def test_what_was_restored_and_deleted_again_stays_for_its_new_time(site: MachineSite) -> None:
    await site.with_account()
    disk = site.disk()
    await site.do(disk, "create")
    await site.to(disk, "delete")
    clock = Clock(site, disk)
    await clock.skip(days=6)
    assert await site.to(disk, "restore") == "CREATED"
    assert {"bin", "until"}.isdisjoint((await site.see(disk)).info)
    assert (await site.to(disk, "delete", retention_days=14)) == "DELETED"
    await clock.skip(days=6)  # the first stay would be over
    assert await site.status(disk) == "DELETED"
    await site.to(disk, "destroy")
    await clock.skip(days=3)
    await clock.handle.result()  # it looked once more, and found an empty bin
    await site.at_rest()


async def test_a_destroy_for_an_earlier_stay_is_refused(site: MachineSite) -> None:
    """What the clock saw may be old by then: the number under which it was deleted is what counts."""
    await site.with_account()
    disk = site.disk()
    await site.do(disk, "create")
    await site.to(disk, "delete")
    number = (await site.see(disk)).info["bin"]
    await site.to(disk, "restore")
    told = f"{disk} is CREATED, not in the recycle bin under number {number}"
    assert await site.refused(disk, "destroy", bin=number) == told
    await site.to(disk, "delete")
    assert "not in the recycle bin under number" in await site.refused(disk, "destroy", bin=number)
    assert await site.status(disk) == "DELETED"


async def test_an_entry_that_is_due_while_the_object_is_busy_waits_its_turn(site: MachineSite) -> None:
    await site.with_account()
    disk = site.disk()
    await site.do(disk, "create")
    await site.to(disk, "delete", retention_days=1)
    await site.hang(disk, "restore")
    restore = await site.admitted(disk, "restore")
    await site.hanging(disk)
    clock = Clock(site, disk)
    await clock.skip(days=2)
    await site.release()
    assert (await site.outcome(restore)).status == "CREATED"
    assert await site.status(disk) == "CREATED"
    await site.at_rest()


async def test_what_could_not_be_destroyed_is_tried_again(site: MachineSite) -> None:
    await site.with_account()
    disk = site.disk()
    await site.seed(disk, "create")
    await site.to(disk, "delete")
    await site.fault("fail", disk, verb="destroy", times=1)
    clock = Clock(site, disk)
    await clock.skip(days=7, seconds=2)
    await failed(site, disk)
    assert await site.status(disk) == "DELETED"
    await clock.skip(minutes=1)
    await site.until(disk, "DESTROYED")
    await clock.handle.result()


async def test_what_a_cascade_put_into_the_bin_is_destroyed_with_it_in_one_action(site: MachineSite) -> None:
    await site.with_machine("a", "b")
    await site.to(site.space(), "delete", cascade=True)
    clock = Clock(site, site.space())
    await clock.skip(days=8)
    await clock.handle.result()
    paths = (site.space(), site.machine("a"), site.machine("b"))
    assert [await site.status(path) for path in paths] == ["DESTROYED"] * 3
    asked = [line.requested_by for path in paths for line in (await site.history(path))[-1:]]
    assert set(asked) == {"recycle bin"}
    assert len({(await site.see(path)).epoch for path in paths}) == 1
    await site.at_rest()


async def test_a_delete_that_fails_leaves_no_time_behind(site: MachineSite) -> None:
    await site.with_account()
    await site.seed(site.disk(), "create")
    await site.fault("fail", site.disk(), verb="delete", times=1)
    outcome = await site.do(site.disk(), "delete")
    assert outcome.status == "CREATED"
    assert {"bin", "until"}.isdisjoint((await site.see(site.disk())).info)
    query = DueBinEntriesQuery(tenant=site.account, at=datetime.now(UTC) + timedelta(days=30), limit=10)
    seen = await SqlRecycleBin(site.service.context.database).list_due_bin_entries(query)
    assert (seen.due, seen.next, seen.waiting) == ([], None, False)


async def test_a_clock_that_was_ended_by_hand_is_named_by_verify_and_started_by_a_sweep(site: MachineSite) -> None:
    await site.with_account()
    await site.seed(site.disk(), "create")
    await site.to(site.disk(), "delete")
    assert await broken(site) == []
    await Clock(site, site.disk()).handle.terminate("somebody's mistake")
    long_ago = format_sortable_time(datetime.now(UTC) - timedelta(hours=1))
    kept = {**(await site.see(site.disk())).info, "until": long_ago}
    late = sa.update(objects).where(objects.c.path == site.disk()).values(info=kept)
    await site.service.context.database.run_transaction(lambda connection: connection.execute(late))
    clock = wire.companion_id(site.account, BIN_ROLE)
    missing, overdue = await broken(site)
    assert (missing.invariant, missing.path) == ("I12", site.account)
    assert f"its recycle-bin clock does not run ({clock})" in missing.what
    assert (overdue.invariant, overdue.path) == ("I12", site.disk())
    assert f"should have been done at {long_ago}" in overdue.what
    dry = await site.asking.run_sweep(SweepOptions(dry_run=True))
    assert HealFinding.WOULD_START in [found.finding for found in dry.found if found.path == clock]
    report = await site.asking.run_sweep(SweepOptions())
    assert [found.finding for found in report.found if found.path == clock] == [HealFinding.STARTED]
    await Clock(site, site.disk()).handle.result()
    assert await site.status(site.disk()) == "DESTROYED"
    assert await broken(site) == []


async def broken(site: MachineSite) -> list[Broken]:
    query = ReadQuery(path=site.account)
    report = await site.asking.run_query(wire.VERIFY_ACTIVITY, query, VerificationReport, seconds=PATIENCE)
    return report.findings
