"""The clock of a recycle bin: one durable timer for all that a tenant has in it, set to whatever is due next.

The inventory knows what is due; the clock only knows when to look. So a restore need not tell it anything,
and thousands of objects in the bin cost one workflow. What is due is destroyed by a normal action.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.machines.bin import BinActivities
    from domain import machines
    from domain.kinds import Program
    from domain.machines.messages import Bin, BinEntry, BinList, BinQuery
    from domain.machines.rules import tenant_of
    from domain.model import Request
    from workflows import calls
    from workflows.calls import run_local

AT_ONCE = 20  # objects that are destroyed side by side
PUT_OFF = 500  # that could not be destroyed and are tried again later; more of them have to wait for those
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=1)  # for what is still on its way into the bin
TRY_AGAIN, LONGEST_TRY = timedelta(seconds=30), timedelta(hours=1)  # what was busy, refused or failed


@workflow.defn(name=machines.BIN)
class EmptyBin:
    """The companion of a tenant: it destroys what was long enough in the recycle bin, and ends when that is empty."""

    def __init__(self) -> None:
        self._look = True
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._later: dict[str, datetime] = {}  # put off until then
        self._tries: dict[str, int] = {}
        self._pause = FIRST_PAUSE

    @workflow.signal(name=machines.LOOK_AGAIN)
    def look_again(self) -> None:
        """Something may be due earlier than I believe."""
        self._look = True

    @workflow.run
    async def run(self, of: Bin) -> None:
        """Destroy what is due, sleep until the next, and end when nothing is left to come."""
        while True:
            self._look = False
            self._later = {path: at for path, at in self._later.items() if at > workflow.now()}
            seen = await self._seen(of.tenant)
            for entry in seen.due:
                self._busy[entry.path] = asyncio.create_task(self._destroy(entry))
            if not (self._busy or self._later or self._look or seen.waiting or seen.next):
                return
            if calls.is_long():
                await workflow.wait_condition(lambda: not self._busy)
                workflow.continue_as_new(of)
            await self._wait(seen)

    async def _seen(self, tenant: str) -> BinList:
        room = min(AT_ONCE - len(self._busy), PUT_OFF - len(self._later))
        query = BinQuery(
            tenant=tenant, at=workflow.now(), limit=max(room, 0), busy=list(self._busy), later=list(self._later)
        )
        return await run_local(BinActivities.bin_due, query)

    async def _destroy(self, entry: BinEntry) -> None:
        """What cannot be destroyed just now is put off, each time for longer."""
        if await _destroyed(entry):
            self._tries.pop(entry.path, None)
        else:
            tries = self._tries[entry.path] = self._tries.get(entry.path, 0) + 1
            self._later[entry.path] = workflow.now() + min(TRY_AGAIN * 2 ** min(tries - 1, 10), LONGEST_TRY)
        del self._busy[entry.path]
        self._look = True

    async def _wait(self, seen: BinList) -> None:
        """Until somebody calls, an entry is done with, or the next one is due."""
        moments = [*([seen.next] if seen.next else []), *self._later.values()]
        waits = [max(moment - workflow.now(), timedelta()) for moment in moments]
        if seen.waiting:
            waits.append(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if seen.waiting else FIRST_PAUSE
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._look, timeout=min(waits, default=None), timeout_summary="the next entry is due"
            )


async def wake_bin(path: str) -> None:
    """Let the clock of the bin that an object goes to look again."""
    tenant = tenant_of(path)
    await calls.wake(BinActivities.wake_bin, Bin(tenant=tenant), f"wake the recycle bin of {tenant}")


async def _destroyed(entry: BinEntry) -> bool:
    """Destroy it, if it still is in the bin by that number. False: not now."""
    request = Request(
        path=entry.path,
        action="destroy",
        spec={"bin": entry.number},
        requested_by=Program.RECYCLE_BIN,
        reason="its retention is over",
    )
    try:
        await calls.act(request)
    except (WorkflowAlreadyStartedError, ChildWorkflowError):  # busy, refused, or the hypervisor failed
        return False
    return True
