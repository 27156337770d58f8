"""Bare Temporal workflows, the baselines of the benchmarks: the least that any design on Temporal costs."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.common import SearchAttributeKey

QUEUE = "bare"
PROGRESS = SearchAttributeKey.for_int("Progress")
SOON = timedelta(seconds=30)


@activity.defn
async def nothing(number: int) -> int:
    return number


@workflow.defn
class OneActivity:
    @workflow.run
    async def run(self, number: int) -> int:
        return await workflow.execute_activity(nothing, number, start_to_close_timeout=SOON)


@workflow.defn
class ManyActivities:
    @workflow.run
    async def run(self, number: int) -> int:
        calls = [workflow.execute_activity(nothing, each, start_to_close_timeout=SOON) for each in range(number)]
        return sum(await asyncio.gather(*calls))


@workflow.defn
class Answering:
    """A bare workflow that answers one update and ends."""

    def __init__(self) -> None:
        self.answered = False

    @workflow.run
    async def run(self, number: int) -> int:
        await workflow.wait_condition(lambda: self.answered)
        return number

    @workflow.update
    async def answer(self, number: int) -> int:
        self.answered = True
        return number


class Journal:
    """The least that an action has to remember: one row, written three times, each time for good."""

    def __init__(self, file: Path) -> None:
        self._thread = ThreadPoolExecutor(1)  # SQLite has one writer
        self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        for line in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "CREATE TABLE rows (id TEXT, number INT)"):
            self._database.execute(line)

    @activity.defn
    async def write(self, number: int) -> int:
        """Writes a row, and returns when it is committed."""
        row = (activity.info().workflow_id, number)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._insert, row)
        return number

    def _insert(self, row: tuple[str | None, int]) -> None:
        self._database.execute("INSERT INTO rows VALUES (?, ?)", row)


@workflow.defn
class SameSteps:
    """The steps of a one-VM action in Temporal, and a committed row for each, without anything of ours."""

    def __init__(self) -> None:
        self._is_admitted = False

    @workflow.run
    async def run(self, number: int) -> int:
        await workflow.execute_local_activity_method(Journal.write, number, start_to_close_timeout=SOON)
        self._is_admitted = True
        await workflow.execute_activity_method(Journal.write, number, start_to_close_timeout=SOON)
        await workflow.execute_local_activity_method(Journal.write, number, start_to_close_timeout=SOON)
        workflow.upsert_search_attributes([PROGRESS.value_set(100)])
        return number

    @workflow.update
    async def answer(self, number: int) -> int:
        await workflow.wait_condition(lambda: self._is_admitted)
        return number
