"""A recycle bin with thousands of objects: one clock, and bounded work at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from activities.machines.recyclebin import RecycleBinActivities
from domain.machines.messages import RecycleBinOwner
from domain.machines.rules import format_sortable_time
from domain.statetable import NONE
from providers.machines.tables import things
from store.machines.queries import SqlRecycleBin
from store.schema import objects
from tests.test_machines.site import MachineSite
from tests.test_machines.test_bin import Clock
from workflows.machines.recyclebin import CONCURRENT_DESTROYS


async def with_disks(site: MachineSite, number: int, status: str, state: str, **info: Any) -> None:
    """So many disks of ours, written where they are kept: to make each by an action would take minutes."""
    paths = [site.disk(f"d{n}") for n in range(number)]
    rest = {"kind": "disk", "status": status, "previous_status": NONE, "target_action": NONE, "target_status": NONE}
    now = datetime.now(UTC)
    record = {
        **rest,
        "parent": site.account,
        "spec": {"size": 1},
        "info": {"generation": 1, **info},
        "error": "",
        "epoch": 0,
        "created_at": now,
        "changed_at": now,
    }
    real = {"kind": "disk", "state": state, "node": "", "machine": "", "image": "", "memory": 0, "effects": 0}
    context = site.service.context
    await context.database.run_transaction(
        lambda at: at.execute(sa.insert(objects), [{"path": path, **record} for path in paths])
    )
    await context.cloud_database.run_transaction(
        lambda at: at.execute(sa.insert(things), [{"path": path, **real} for path in paths])
    )


async def count(site: MachineSite, status: str) -> int:
    which = sa.select(sa.func.count()).where(objects.c.parent == site.account, objects.c.status == status)
    return int(await site.service.context.database.run_transaction(lambda at: at.execute(which).scalar_one()))


async def test_three_thousand_objects_go_into_the_bin_with_their_account_and_out_of_it_by_one_clock(
    site: MachineSite,
) -> None:
    """With a timer for each, Temporal refused to start more than two thousand, and the delete never ended."""
    await site.with_account()
    await with_disks(site, 3_000, "CREATED", "detached")
    assert await site.to(site.account, "delete", cascade=True) == "DELETED"
    assert await count(site, "DELETED") == 3_000
    described = await site.asking.client.get_workflow_handle(site.account).describe()
    assert described.history_length < 40
    clock = Clock(site, site.account)
    assert (await clock.handle.describe()).history_length < 20
    await clock.skip(days=7, seconds=2)
    await clock.handle.result()
    assert await count(site, "DESTROYED") == 3_000
    assert await site.status(site.account) == "DESTROYED"


async def test_many_entries_that_are_due_by_themselves_are_destroyed_so_many_at_a_time(site: MachineSite) -> None:
    await site.with_account()
    await with_disks(
        site, 70, "DELETED", "binned", bin=1, until=format_sortable_time(datetime.now(UTC) - timedelta(minutes=1))
    )
    context = site.service.context
    await RecycleBinActivities(site.asking.client, SqlRecycleBin(context.database)).wake_bin_clock(
        RecycleBinOwner(tenant=site.account)
    )
    clock = Clock(site, site.disk())
    await clock.handle.result()
    assert await count(site, "DESTROYED") == 70
    running, most = 0, 0
    async for event in clock.handle.fetch_history_events():
        running += event.HasField("start_child_workflow_execution_initiated_event_attributes")
        running -= event.HasField("child_workflow_execution_completed_event_attributes")
        most = max(most, running)
    assert most == CONCURRENT_DESTROYS
