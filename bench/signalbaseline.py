"""A bare workflow that waits for one signal: the baseline of actions that wait for an answer from outside."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow

QUEUE = "bare-signal"

# Called when a workflow begins to wait. A signal that arrives earlier would save it a workflow task, which an
# answer to a request cannot do, and the baseline would be too fast.
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
