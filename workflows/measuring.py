"""Metrics and logs of actions. A replay records nothing again."""

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
    """Counts and times an action that has ended, and returns its outcome."""
    labels = {"kind": kind_of(outcome.path), "action": outcome.action}
    _count(metrics.ACTIONS, {**labels, "outcome": outcome.result.value})
    _time(metrics.ACTION_LATENCY, workflow.info().start_time, labels)
    _say("ended", action=outcome.action, result=outcome.result.value, status=outcome.status, failed=outcome.failed)
    return outcome


def count_refused(request: Request, refusal: Refusal) -> None:
    """Counts a refused request, and logs the reason."""
    labels = {"kind": kind_of(request.path), "action": request.action, "category": refusal.category.value}
    _count(metrics.REFUSALS, labels)
    _say("refused", action=request.action, category=refusal.category.value, reason=refusal.message)


def time_wait(request: Request, since: datetime) -> None:
    """Records how long a forced action waited for the actions below it."""
    _time(metrics.LOCK_WAIT, since, {"kind": kind_of(request.path), "action": request.action})


def _say(event: str, **fields: object) -> None:
    if not workflow.unsafe.is_replaying_history_events():
        _log.info(event, extra=fields)


def _count(name: str, labels: dict[str, str]) -> None:
    workflow.metric_meter().create_counter(name, metrics.COUNTERS[name]).add(1, labels)


def _time(name: str, since: datetime, labels: dict[str, str]) -> None:
    timer = workflow.metric_meter().create_histogram_timedelta(name, metrics.TIMERS[name])
    timer.record(workflow.now() - since, labels)
