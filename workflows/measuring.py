"""Counting, timing and logging actions. Replayed code does none of it again."""

from __future__ import annotations

import logging
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain import metrics
    from domain.model import Outcome, Refusal, Request
    from domain.paths import kind_of

_log = logging.getLogger("ratchet.actions")


def count_ended(outcome: Outcome) -> Outcome:
    """Count an action that came to its end, and hand its outcome on."""
    told = {"kind": kind_of(outcome.path), "action": outcome.action}
    _count(metrics.ACTIONS, {**told, "outcome": outcome.result.value})
    _time(metrics.ACTION_LATENCY, workflow.info().start_time, told)
    _say("ended", action=outcome.action, result=outcome.result.value, status=outcome.status, failed=outcome.failed)
    return outcome


def count_refused(request: Request, refusal: Refusal) -> None:
    """Count a request that was refused, and log the reason."""
    told = {"kind": kind_of(request.path), "action": request.action, "category": refusal.category.value}
    _count(metrics.REFUSALS, told)
    _say("refused", action=request.action, category=refusal.category.value, reason=refusal.message)


def time_wait(request: Request, since: datetime) -> None:
    """Count how long a forced action waited for those below it."""
    _time(metrics.LOCK_WAIT, since, {"kind": kind_of(request.path), "action": request.action})


def _say(event: str, **told: object) -> None:
    if not workflow.unsafe.is_replaying_history_events():
        _log.info(event, extra=told)


def _count(name: str, told: dict[str, str]) -> None:
    workflow.metric_meter().create_counter(name, metrics.COUNTERS[name]).add(1, told)


def _time(name: str, since: datetime, told: dict[str, str]) -> None:
    timer = workflow.metric_meter().create_histogram_timedelta(name, metrics.TIMERS[name])
    timer.record(workflow.now() - since, told)
