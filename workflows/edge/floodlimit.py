"""Companions that anybody may signal: what a flood of messages costs them is bounded.

Messages that change nothing are recorded up to an hourly budget, and only counted beyond it. A run continues as new
long before Temporal's signal limit.
"""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain.edge.budgets import SIGNALS_PER_RUN, IgnoredMessageBudget
    from domain.edge.messages import IgnoredMessage
    from workflows.argumentguard import GuardedInitWorkflow
    from workflows.calls import should_continue_as_new
    from workflows.edge import calls


class FloodLimitedWorkflow(GuardedInitWorkflow):
    """Base of such a companion. It counts messages in `_heard`, and calls `_flush_ignored_messages` now and then."""

    def __init__(self, path: str, budget: IgnoredMessageBudget, actor: str) -> None:
        self._path, self._actor = path, actor
        self._budget = budget
        self._to_ignore: list[IgnoredMessage] = []
        self._heard = 0

    def _must_continue_as_new(self) -> bool:
        """Tells whether this run has heard enough, and has read all of it."""
        full = self._heard >= SIGNALS_PER_RUN or should_continue_as_new()
        return full and workflow.all_handlers_finished()

    def _is_budget_spent(self) -> bool:
        """Tells whether a message that changes nothing would only be counted now."""
        return self._budget.is_budget_spent(workflow.now().timestamp())

    def _spend_budget(self) -> bool:
        """Uses up budget for a message that changes nothing. False: there is none left, and it was only counted."""
        kept, self._budget = self._budget.spend_for_message(workflow.now().timestamp())
        return kept

    def _queue_ignored_message(self, state: str, reason: str, path: str = "") -> None:
        """Records, at the next opportunity, a message that changes nothing."""
        if self._spend_budget():
            message = IgnoredMessage(path=path or self._path, state=state, reason=reason, actor=self._actor)
            self._to_ignore.append(message)

    async def _flush_ignored_messages(self) -> None:
        messages, self._to_ignore = self._to_ignore, []
        if messages:
            await calls.record_ignored_messages(*messages)

    async def _record_ignored_count(self, state: str) -> None:
        """Writes one history line with the number of ignored messages that were over the
        budget, so have no line each.
        """
        if more := self._budget.describe_unrecorded():
            self._budget = self._budget.model_copy(update={"more": 0})
            await calls.record_ignored_messages(
                IgnoredMessage(path=self._path, state=state, reason=more, actor=self._actor)
            )
