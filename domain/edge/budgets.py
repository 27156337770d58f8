"""Limits for floods of messages that change nothing: the first are recorded one by one, the rest only counted.

Anybody who may signal can send any number of messages; their cost must not grow with that number.
"""

from __future__ import annotations

from datetime import timedelta

from domain.errors import format_count
from domain.model import FrozenModel

IGNORED_RECORDED_PER_HOUR = 50
HOUR_SECONDS = 3_600.0
SIGNALS_PER_RUN = 1_000  # per run before it continues as new: Temporal allows 10,000, but replaying them takes time
REPEAT_ACCEPTED_AFTER = 10.0  # seconds after which an action at Temporal's signal limit accepts the same message again
READING_TASK_TIMEOUT = timedelta(
    seconds=10
)  # the workflow task timeout where many messages are read; a dead worker delays them this long


class IgnoredMessageBudget(FrozenModel):
    """Counts the ignored messages of this hour: those recorded in the history, and those beyond the limit."""

    since: float = 0.0
    kept: int = 0
    more: int = 0

    def is_budget_spent(self, now: float) -> bool:
        """Tells whether the hour's budget is spent, so that messages are only counted."""
        return self.kept >= IGNORED_RECORDED_PER_HOUR and now - self.since < HOUR_SECONDS

    def spend_for_message(self, now: float) -> tuple[bool, IgnoredMessageBudget]:
        """Returns whether to record this message, and the budget after it."""
        budget = IgnoredMessageBudget(since=now, more=self.more) if now - self.since >= HOUR_SECONDS else self
        if budget.kept < IGNORED_RECORDED_PER_HOUR:
            return True, budget.model_copy(update={"kept": budget.kept + 1})
        return False, budget.model_copy(update={"more": budget.more + 1})

    def describe_unrecorded(self) -> str:
        """Returns a sentence about the messages that were only counted; empty if there were none."""
        more = format_count(self.more, "more message")
        return f"{more} without effect, not kept one by one" if self.more else ""
