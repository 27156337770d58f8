"""A bare workflow that waits for one signal: what any action pays that awaits an answer from outside."""

from __future__ import annotations

from temporalio import workflow

QUEUE = "bare-signal"


@workflow.defn
class WaitForSignal:
    def __init__(self) -> None:
        self.answered = False

    @workflow.run
    async def run(self, number: int) -> int:
        await workflow.wait_condition(lambda: self.answered)
        return number

    @workflow.signal
    def answer(self, number: int) -> None:
        self.answered = True
