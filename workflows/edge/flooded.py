"""Companions that anybody may signal: what a flood of messages costs them is bounded.

Messages that change nothing are recorded up to an hourly budget, and only counted beyond it. A run continues as new
long before Temporal's signal limit.
"""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain.edge.floods import SIGNALS_PER_RUN, IgnoredBudget
    from domain.edge.messages import IgnoredMessage
    from workflows.edge import calls
    from workflows.guard import InitializedWorkflow


class FloodedWorkflow(InitializedWorkflow):
    """Base of such a companion. It counts what it hears in `_heard`, and calls `_record_ignored` now and then."""

    def __init__(self, path: str, budget: IgnoredBudget, actor: str) -> None:
        self._path, self._actor = path, actor
        self._budget = budget
        self._to_ignore: list[IgnoredMessage] = []
        self._heard = 0

    def _must_continue_as_new(self) -> bool:
        """Tells whether this run has heard enough, and has read all of it."""
        full = self._heard >= SIGNALS_PER_RUN or workflow.info().is_continue_as_new_suggested()
        return full and workflow.all_handlers_finished()

    def _spend(self) -> bool:
        """Uses up budget for a message that changes nothing. False: there is none left, and it was only counted."""
        kept, self._budget = self._budget.spend_one(workflow.now().timestamp())
        return kept

    def _ignore(self, state: str, reason: str, path: str = "") -> None:
        """Records, at the next opportunity, a message that changes nothing."""
        if self._spend():
            message = IgnoredMessage(path=path or self._path, state=state, reason=reason, actor=self._actor)
            self._to_ignore.append(message)

    async def _record_ignored(self) -> None:
        messages, self._to_ignore = self._to_ignore, []
        if messages:
            await calls.record_ignored(*messages)

    async def _record_summary(self, state: str) -> None:
        """Writes one history line with the number of ignored messages that were over the
        budget, so have no line each.
        """
        if more := self._budget.describe_unrecorded():
            self._budget = self._budget.model_copy(update={"more": 0})
            await calls.record_ignored(IgnoredMessage(path=self._path, state=state, reason=more, actor=self._actor))
