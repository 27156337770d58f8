"""Bare Temporal timers: workflows that sleep until a time and return when they woke."""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow

QUEUE = "bare-timers"


@workflow.defn
class Sleeper:
    @workflow.run
    async def run(self, due: datetime) -> datetime:
        await workflow.sleep((due - workflow.now()).total_seconds())
        return workflow.now()
