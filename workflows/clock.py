"""Clocks: companions with one durable timer for all their objects, set to what is due next.

The inventory stores what is due; a clock only knows when to read it. So a change moves no timer, whatever is late is
done as soon as a worker is back, and thousands of waiting objects cost one workflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain import wire
    from workflows.calls import should_continue_as_new

LONGEST_SLEEP = timedelta(days=3650)  # a longer timer is set in parts


class ClockWorkflow:
    """Base of clocks. `_look` says that the inventory must be read again."""

    def __init__(self) -> None:
        self._look = True

    @workflow.signal(name=wire.LOOK_AGAIN)
    def look_again(self) -> None:
        """Signal: something may be due earlier than planned."""
        self._look = True

    async def _sleep_until_due(self, waits: Sequence[timedelta], summary: str) -> None:
        """Sleeps for the shortest of these times, or until `_look` is set; without any, until then only."""
        timeout = min(max(min(waits), timedelta()), LONGEST_SLEEP) if waits else None
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._look or should_continue_as_new(), timeout=timeout, timeout_summary=summary
            )

    async def _may_end(self) -> bool:
        """Tells whether nothing is due earlier than planned, as far as all signals say that came."""
        await workflow.wait_condition(workflow.all_handlers_finished)
        return not self._look
