"""Ensures that every companion runs, whatever ended it: a terminate by hand, a bug, a lost start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.fairness import tenant_priority
from activities.runs import call_concurrently, is_workflow_open
from domain.companions import OVERDUE_AFTER, Companion, CompanionType
from domain.invariants import InvariantViolation
from domain.limits import TASK_TIMEOUT
from domain.wire import ACTIONS_QUEUE

SECOND_LOOK_AFTER = 1.0  # seconds until the second look: a start may be under way
PAGE_SIZE = 1_000  # open workflows in one answer of Temporal


@dataclass(frozen=True)
class ExpectedSchedule:
    """A Temporal schedule that must exist, and the function that creates it."""

    id: str
    title: str
    create_schedule: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class MissingCompanion:
    """A companion or schedule that should exist and does not."""

    id: str
    path: str
    title: str


@dataclass(eq=False)
class CompanionReconciler:
    """Finds missing companions: lists open workflows in pages, and describes those not listed one by one."""

    client: Client
    rows: Sequence[CompanionType] = ()
    schedules: Sequence[ExpectedSchedule] = ()

    async def list_missing_companions(self) -> list[MissingCompanion]:
        """Returns companions and schedules that should exist and do not. Changes nothing."""
        found = [
            MissingCompanion(companion.id, companion.path, row.title)
            for row in self.rows
            for companion in await self._find_missing_of_type(row)
        ]
        return found + [
            MissingCompanion(schedule.id, schedule.id, schedule.title) for schedule in await self._missing_schedules()
        ]

    async def list_overdue_violations(self, prefix: str, at: datetime) -> list[InvariantViolation]:
        """Returns violations of I12: events at or below a path that are overdue by more than OVERDUE."""
        told = "should have been done at {}: its {} does not run, or cannot do it"
        return [
            InvariantViolation("I12", path, told.format(since, row.title))
            for row in self.rows
            if row.list_overdue_violations
            for path, since in (await row.list_overdue_violations(prefix, at - OVERDUE_AFTER)).items()
        ]

    async def start_missing_companions(self, at: datetime) -> list[MissingCompanion]:
        """Starts missing companions and schedules, and wakes overdue clocks. Returns what was started."""
        started: list[MissingCompanion] = []
        for row in self.rows:
            absent = await self._find_missing_of_type(row)
            runs = await call_concurrently(partial(self._start_companion, row), absent)
            begun = [(companion, run) for companion, run in zip(absent, runs, strict=True) if run]
            await self._stop_if_unneeded(row, {companion.id: run for companion, run in begun})
            started += [MissingCompanion(companion.id, companion.path, row.title) for companion, _ in begun]
            await self._wake_overdue_clocks(row, at)
        for schedule in await self._missing_schedules():
            await schedule.create_schedule()
            started.append(MissingCompanion(schedule.id, schedule.id, schedule.title))
        return started

    async def _find_missing_of_type(self, row: CompanionType) -> list[Companion]:
        """Returns expected companions without an open run, after a second look."""
        running = f"WorkflowType = '{row.workflow}' AND ExecutionStatus = 'Running'"
        listed = {found.id async for found in self.client.list_workflows(running, page_size=PAGE_SIZE)}
        doubtful = [companion async for companion in row.list_expected() if companion.id not in listed]
        if doubtful := await self._filter_without_run(doubtful):
            await asyncio.sleep(SECOND_LOOK_AFTER)
            expected = {companion.id async for companion in row.list_expected()}
            doubtful = await self._filter_without_run([companion for companion in doubtful if companion.id in expected])
        return doubtful

    async def _filter_without_run(self, doubtful: Sequence[Companion]) -> list[Companion]:
        answers = await call_concurrently(lambda companion: is_workflow_open(self.client, companion.id), doubtful)
        return [companion for companion, alive in zip(doubtful, answers, strict=True) if not alive]

    async def _start_companion(self, row: CompanionType, companion: Companion) -> str:
        """Starts a companion and returns its run; empty if one runs already."""
        try:
            handle = await self.client.start_workflow(
                row.workflow,
                companion.start_input,
                id=companion.id,
                task_queue=ACTIONS_QUEUE,
                task_timeout=TASK_TIMEOUT,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=f"{row.title} of {companion.path}",
                priority=tenant_priority(companion.path),
            )
        except WorkflowAlreadyStartedError:
            return ""
        return handle.first_execution_run_id or ""

    async def _stop_if_unneeded(self, row: CompanionType, started: dict[str, str]) -> None:
        """Terminates companions whose object was removed while they were started."""
        if not started:
            return
        expected = {companion.id async for companion in row.list_expected()}
        for workflow_id, run in started.items():
            if workflow_id not in expected:
                with suppress(RPCError):  # it has ended by itself
                    handle = self.client.get_workflow_handle(workflow_id, run_id=run)
                    await handle.terminate("what it was started for has gone meanwhile")

    async def _wake_overdue_clocks(self, row: CompanionType, at: datetime) -> None:
        """Signals clocks whose next event is overdue: they may have missed the signal that announced it."""
        if not row.wake_signal:
            return
        async for companion in row.list_expected():
            if companion.due and companion.due < at - OVERDUE_AFTER:
                with suppress(RPCError):  # it has just ended
                    await self.client.get_workflow_handle(companion.id).signal(row.wake_signal)

    async def _missing_schedules(self) -> list[ExpectedSchedule]:
        found = []
        for row in self.schedules:
            try:
                await self.client.get_schedule_handle(row.id).describe()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                found.append(row)
        return found
