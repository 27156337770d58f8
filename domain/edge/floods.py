"""Many messages that change nothing: the first are kept one by one, the rest are counted.

Whoever may signal can send any number of messages. What they cost must not grow with their number.
"""

from __future__ import annotations

from datetime import timedelta

from domain.model import Model

KEPT_PER_HOUR = 50
HOUR = 3_600.0
SIGNALS = 1_000  # heard by one run before it begins anew: Temporal lets it hear 10,000, and reading them takes time
REPEATS = 10.0  # seconds after which an action that may hear no more signals lets the same word in again
READING = timedelta(seconds=10)  # for a step that has many messages to read; a dead worker is missed only after it


class IgnoredBudget(Model):
    """How many messages were kept as ignored within the hour, and how many more came."""

    since: float = 0.0
    kept: int = 0
    more: int = 0

    def is_spent(self, now: float) -> bool:
        """Is everything that comes now only counted?"""
        return self.kept >= KEPT_PER_HOUR and now - self.since < HOUR

    def spend(self, now: float) -> tuple[bool, IgnoredBudget]:
        """May this message be kept? And what is left then."""
        budget = IgnoredBudget(since=now, more=self.more) if now - self.since >= HOUR else self
        if budget.kept < KEPT_PER_HOUR:
            return True, budget.model_copy(update={"kept": budget.kept + 1})
        return False, budget.model_copy(update={"more": budget.more + 1})

    def summary(self) -> str:
        """What is said of those that were not kept; empty if all were."""
        return f"{self.more} more messages changed nothing and were not kept one by one" if self.more else ""
