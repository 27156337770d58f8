"""The clock of a recycle bin: one durable timer for everything in a tenant's bin. A normal action destroys what is due.

A restore need not tell it anything: what is due is read from the inventory.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.machines.recyclebin import RecycleBinActivities
    from domain import machines
    from domain.kinds import InternalProgram
    from domain.machines.messages import BinEntry, DueBinEntries, DueBinEntriesQuery, RecycleBinOwner
    from domain.machines.rules import bin_tenant_of
    from domain.model import Request
    from workflows import calls
    from workflows.calls import run_local_activity
    from workflows.clock import ClockWorkflow

CONCURRENT_DESTROYS = 20  # objects that are destroyed side by side
MAX_POSTPONED = 500  # objects that are postponed; further ones wait for these
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=1)  # while a due object enters the bin
FIRST_RETRY_AFTER, LONGEST_RETRY_AFTER = (
    timedelta(seconds=30),
    timedelta(hours=1),
)  # for objects that were busy, refused or failed


@workflow.defn(name=machines.EMPTY_BIN)
class EmptyBin(ClockWorkflow):
    """The companion of a tenant: it destroys what is due in the recycle bin, and ends when the bin is empty."""

    def __init__(self) -> None:
        super().__init__()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._later: dict[str, datetime] = {}  # path -> postponed until
        self._tries: dict[str, int] = {}
        self._pause = FIRST_PAUSE

    @workflow.run
    async def run(self, of: RecycleBinOwner) -> None:
        """Destroys due entries, sleeps until the next one, and ends when none is left."""
        while True:
            self._look = False
            self._later = {path: at for path, at in self._later.items() if at > workflow.now()}
            seen = await self._read_due_entries(of.tenant)
            for entry in seen.due:
                self._busy[entry.path] = asyncio.create_task(self._destroy_entry(entry))
            if not (self._busy or self._later or self._look or seen.waiting or seen.next) and await self._may_end():
                return
            if calls.should_continue_as_new():
                await workflow.wait_condition(lambda: not self._busy and workflow.all_handlers_finished())
                workflow.continue_as_new(of)
            await self._wait_for_work(seen)

    async def _read_due_entries(self, tenant: str) -> DueBinEntries:
        room = min(CONCURRENT_DESTROYS - len(self._busy), MAX_POSTPONED - len(self._later))
        query = DueBinEntriesQuery(
            tenant=tenant, at=workflow.now(), limit=max(room, 0), busy=list(self._busy), later=list(self._later)
        )
        return await run_local_activity(RecycleBinActivities.list_due_bin_entries, query)

    async def _destroy_entry(self, entry: BinEntry) -> None:
        """Destroys an entry; if that fails, postpones it, each time for longer."""
        request = Request(
            path=entry.path,
            action="destroy",
            spec={"bin": entry.number},  # refused if it is not in the bin by this deletion any more
            requested_by=InternalProgram.RECYCLE_BIN,
            reason="its retention is over",
        )
        if not await calls.run_child_action(request):
            self._tries.pop(entry.path, None)
        else:  # busy, refused, or the hypervisor failed
            tries = self._tries[entry.path] = self._tries.get(entry.path, 0) + 1
            self._later[entry.path] = workflow.now() + min(
                FIRST_RETRY_AFTER * 2 ** min(tries - 1, 10), LONGEST_RETRY_AFTER
            )
        del self._busy[entry.path]
        self._look = True

    async def _wait_for_work(self, seen: DueBinEntries) -> None:
        """Waits until a signal comes, an entry is finished, or the next one is due."""
        moments = [*([seen.next] if seen.next else []), *self._later.values()]
        waits = [moment - workflow.now() for moment in moments]
        if seen.waiting:
            waits.append(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if seen.waiting else FIRST_PAUSE
        await self._sleep_until_due(waits, "the next entry is due")


async def wake_bin_clock(path: str) -> None:
    """Wakes the clock of the bin that an object goes to."""
    tenant = bin_tenant_of(path)
    summary = f"wake the recycle bin of {tenant}"
    await calls.run_short_activity(
        RecycleBinActivities.wake_bin_clock, RecycleBinOwner(tenant=tenant), timedelta(seconds=10), summary
    )
