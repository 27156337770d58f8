"""Bare Temporal workflows, the baselines of the benchmarks: the least that any design on Temporal costs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow

QUEUE = "bare"


@activity.defn
async def nothing(number: int) -> int:
    return number


@workflow.defn
class OneActivity:
    @workflow.run
    async def run(self, number: int) -> int:
        return await workflow.execute_activity(nothing, number, start_to_close_timeout=timedelta(seconds=30))


@workflow.defn
class ManyActivities:
    @workflow.run
    async def run(self, number: int) -> int:
        calls = [
            workflow.execute_activity(nothing, each, start_to_close_timeout=timedelta(seconds=30))
            for each in range(number)
        ]
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
