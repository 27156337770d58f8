"""Bare Temporal timers: workflows that sleep until a time and return when they woke; and bare starts."""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow

from bench.baselines import PROGRESS, commit_rows

QUEUE = "bare-timers"


@workflow.defn
class Sleeper:
    @workflow.run
    async def run(self, due: datetime) -> datetime:
        await workflow.sleep((due - workflow.now()).total_seconds())
        return workflow.now()


@workflow.defn
class OneCommit:
    """The steps of a lease's start, without anything of ours: a workflow of its own, a commit, a search attribute."""

    @workflow.run
    async def run(self, number: int) -> datetime:
        await commit_rows()
        workflow.upsert_search_attributes([PROGRESS.value_set(100)])
        return workflow.now()
