"""Ensures that every companion runs, whatever ended it: a terminate by hand, a bug, a lost start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.runs import is_open
from domain.companions import OVERDUE, Companion, CompanionRow
from domain.limits import TASK_TIMEOUT
from domain.model import BrokenPromise
from domain.wire import ACTIONS_QUEUE

T = TypeVar("T")

AT_ONCE = 20  # calls to Temporal
SETTLE = 1.0  # seconds until the second look: a start may be under way
PAGE = 1_000  # open workflows in one answer of Temporal


@dataclass(frozen=True)
class ScheduleRow:
    """A Temporal schedule that must exist, and the function that creates it."""

    id: str
    title: str
    make: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Missing:
    """A companion or schedule that should exist and does not."""

    id: str
    path: str
    title: str


@dataclass(eq=False)
class Companions:
    """Finds missing companions: lists open workflows in pages, and describes those not listed one by one."""

    client: Client
    rows: Sequence[CompanionRow] = ()
    schedules: Sequence[ScheduleRow] = ()

    async def missing(self) -> list[Missing]:
        """Returns companions and schedules that should exist and do not. Changes nothing."""
        found = [Missing(each.id, each.path, row.title) for row in self.rows for each in await self._missing_of(row)]
        return found + [Missing(each.id, each.id, each.title) for each in await self._unscheduled()]

    async def overdue(self, prefix: str, at: datetime) -> list[BrokenPromise]:
        """Returns violations of I12: events at or below a path that are overdue by more than OVERDUE."""
        told = "should have been done at {}: its {} does not run, or cannot do it"
        return [
            BrokenPromise("I12", path, told.format(since, row.title))
            for row in self.rows
            if row.overdue
            for path, since in (await row.overdue(prefix, at - OVERDUE)).items()
        ]

    async def ensure(self, at: datetime) -> list[Missing]:
        """Starts missing companions and schedules, and wakes overdue clocks. Returns what was started."""
        started: list[Missing] = []
        for row in self.rows:
            absent = await self._missing_of(row)
            runs = await _for_all(partial(self._start, row), absent)
            begun = [(each, run) for each, run in zip(absent, runs, strict=True) if run]
            await self._stop_if_unneeded(row, {each.id: run for each, run in begun})
            started += [Missing(each.id, each.path, row.title) for each, _ in begun]
            await self._wake(row, at)
        for schedule in await self._unscheduled():
            await schedule.make()
            started.append(Missing(schedule.id, schedule.id, schedule.title))
        return started

    async def _missing_of(self, row: CompanionRow) -> list[Companion]:
        """Returns expected companions without an open run, after a second look."""
        running = f"WorkflowType = '{row.workflow}' AND ExecutionStatus = 'Running'"
        listed = {found.id async for found in self.client.list_workflows(running, page_size=PAGE)}
        doubtful = [each async for each in row.expected() if each.id not in listed]
        if doubtful := await self._closed(doubtful):
            await asyncio.sleep(SETTLE)
            expected = {each.id async for each in row.expected()}
            doubtful = await self._closed([each for each in doubtful if each.id in expected])
        return doubtful

    async def _closed(self, doubtful: Sequence[Companion]) -> list[Companion]:
        answers = await _for_all(lambda each: is_open(self.client, each.id), doubtful)
        return [each for each, alive in zip(doubtful, answers, strict=True) if not alive]

    async def _start(self, row: CompanionRow, companion: Companion) -> str:
        """Starts a companion and returns its run; empty if one runs already."""
        try:
            handle = await self.client.start_workflow(
                row.workflow,
                companion.start,
                id=companion.id,
                task_queue=ACTIONS_QUEUE,
                task_timeout=TASK_TIMEOUT,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=f"{row.title} of {companion.path}",
            )
        except WorkflowAlreadyStartedError:
            return ""
        return handle.first_execution_run_id or ""

    async def _stop_if_unneeded(self, row: CompanionRow, started: dict[str, str]) -> None:
        """Terminates companions whose object was removed while they were started."""
        if not started:
            return
        expected = {each.id async for each in row.expected()}
        for workflow_id, run in started.items():
            if workflow_id not in expected:
                with suppress(RPCError):  # it has ended by itself
                    handle = self.client.get_workflow_handle(workflow_id, run_id=run)
                    await handle.terminate("what it was started for has gone meanwhile")

    async def _wake(self, row: CompanionRow, at: datetime) -> None:
        """Signals clocks whose next event is overdue: they may have missed the signal that announced it."""
        if not row.wake:
            return
        async for each in row.expected():
            if each.due and each.due < at - OVERDUE:
                with suppress(RPCError):  # it has just ended
                    await self.client.get_workflow_handle(each.id).signal(row.wake)

    async def _unscheduled(self) -> list[ScheduleRow]:
        found = []
        for row in self.schedules:
            try:
                await self.client.get_schedule_handle(row.id).describe()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                found.append(row)
        return found


async def _for_all(call: Callable[[Companion], Awaitable[T]], companions: Sequence[Companion]) -> list[T]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(companion: Companion) -> T:
        async with room:
            return await call(companion)

    return await asyncio.gather(*map(one, companions))
