"""A recycle bin with thousands of objects: one clock, and work that is bounded at every moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from activities.machines.bin import BinActivities
from domain.machine import NONE
from domain.machines.model import Bin
from domain.machines.rules import stamp
from providers.machines.tables import things
from store.bins import SqlBin
from store.schema import objects
from tests.test_machines.estate import Estate
from tests.test_machines.test_bin import Clock
from workflows.machines.bin import AT_ONCE


async def with_disks(estate: Estate, number: int, status: str, state: str, **info: Any) -> None:
    """So many disks of ours, written where they are kept: to make each by an action would take minutes."""
    paths = [estate.disk(f"d{n}") for n in range(number)]
    rest = {"kind": "disk", "status": status, "previous_status": NONE, "target_action": NONE, "target_status": NONE}
    now = datetime.now(UTC)
    record = {
        **rest,
        "parent": estate.account,
        "spec": {"size": 1},
        "info": {"generation": 1, **info},
        "error": "",
        "epoch": 0,
        "created_at": now,
        "changed_at": now,
    }
    real = {"kind": "disk", "state": state, "node": "", "machine": "", "image": "", "memory": 0, "effects": 0}
    parts = estate.service.parts
    await parts.database.run(lambda at: at.execute(sa.insert(objects), [{"path": path, **record} for path in paths]))
    await parts.cloud_database.run(lambda at: at.execute(sa.insert(things), [{"path": path, **real} for path in paths]))


async def count(estate: Estate, status: str) -> int:
    which = sa.select(sa.func.count()).where(objects.c.parent == estate.account, objects.c.status == status)
    return int(await estate.service.parts.database.run(lambda at: at.execute(which).scalar_one()))


async def test_three_thousand_objects_go_into_the_bin_with_their_account_and_out_of_it_by_one_clock(
    estate: Estate,
) -> None:
    """With a timer for each, Temporal refused to start more than two thousand, and the delete never ended."""
    await estate.with_account()
    await with_disks(estate, 3_000, "CREATED", "detached")
    assert await estate.to(estate.account, "delete", cascade=True) == "DELETED"
    assert await count(estate, "DELETED") == 3_000
    described = await estate.asking.client.get_workflow_handle(estate.account).describe()
    assert described.history_length < 40
    clock = Clock(estate, estate.account)
    assert (await clock.handle.describe()).history_length < 20
    await clock.skip(days=7, seconds=2)
    await clock.handle.result()
    assert await count(estate, "DESTROYED") == 3_000
    assert await estate.status(estate.account) == "DESTROYED"


async def test_many_entries_that_are_due_by_themselves_are_destroyed_so_many_at_a_time(estate: Estate) -> None:
    await estate.with_account()
    await with_disks(estate, 70, "DELETED", "binned", bin=1, until=stamp(datetime.now(UTC) - timedelta(minutes=1)))
    parts = estate.service.parts
    await BinActivities(estate.asking.client, SqlBin(parts.database)).wake_bin(Bin(tenant=estate.account))
    clock = Clock(estate, estate.disk())
    await clock.handle.result()
    assert await count(estate, "DESTROYED") == 70
    running, most = 0, 0
    async for event in clock.handle.fetch_history_events():
        running += event.HasField("start_child_workflow_execution_initiated_event_attributes")
        running -= event.HasField("child_workflow_execution_completed_event_attributes")
        most = max(most, running)
    assert most == AT_ONCE
