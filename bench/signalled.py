"""A bare workflow that waits for one signal: what any action pays that awaits an answer from outside."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow

QUEUE = "bare-signal"

# Told which workflow waits by now. A signal that comes before its workflow waits saves it a task, which no answer to
# a question can do: the bare one would be quicker than anything that waits.
waits: Callable[[str], None] = lambda _name: None  # noqa: E731


@workflow.defn
class WaitForSignal:
    def __init__(self) -> None:
        self.answered = False

    @workflow.run
    async def run(self, number: int) -> int:
        waits(workflow.info().workflow_id)
        await workflow.wait_condition(lambda: self.answered)
        return number

    @workflow.signal
    def answer(self, number: int) -> None:
        self.answered = True
