"""Bare Temporal workflows, the baselines of the benchmarks: the least that any design on Temporal costs."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
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
    """The least that an action has to remember: rows, each written for good."""

    def __init__(self, file: Path) -> None:
        self._thread = ThreadPoolExecutor(1)  # SQLite has one writer
        self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        for line in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "CREATE TABLE rows (id TEXT, number INT)"):
            self._database.execute(line)

    @activity.defn
    async def write(self, rows: int) -> int:
        """Writes rows in one transaction, and returns when they are committed."""
        name = activity.info().workflow_id
        work = partial(self._insert, [(name, number) for number in range(rows)])
        await asyncio.get_running_loop().run_in_executor(self._thread, work)
        return rows

    def _insert(self, rows: list[tuple[str | None, int]]) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO rows VALUES (?, ?)", rows)
        self._database.execute("COMMIT")


async def commit_rows(rows: int = 1) -> None:
    """Commits rows in a local activity, as an action's begin and finish do."""
    await workflow.execute_local_activity_method(Journal.write, rows, start_to_close_timeout=SOON)


class AnsweredAfterCommit:
    """A bare workflow that is admitted by an update, once `is_admitted` is set."""

    def __init__(self) -> None:
        self.is_admitted = False

    @workflow.update
    async def answer(self, number: int) -> int:
        await workflow.wait_condition(lambda: self.is_admitted)
        return number


@workflow.defn
class SameSteps(AnsweredAfterCommit):
    """The steps of an action on VMs in Temporal, and the rows that it commits, without anything of ours.

    Each VM is written when it is admitted and when it has landed. More than one are in ten places.
    """

    @workflow.run
    async def run(self, vms: int) -> int:
        await commit_rows(vms)
        self.is_admitted = True
        places = min(10, vms)
        calls = [
            workflow.execute_activity_method(Journal.write, vms // places, start_to_close_timeout=SOON)
            for _ in range(places)
        ]
        await asyncio.gather(*calls)
        await commit_rows()
        workflow.upsert_search_attributes([PROGRESS.value_set(100)])
        return vms
