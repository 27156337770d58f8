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


def count_ended_action(outcome: Outcome) -> Outcome:
    """Counts and times an action that has ended, and returns its outcome."""
    labels = {"kind": kind_of(outcome.path), "action": outcome.action}
    _increment_counter(metrics.ACTIONS, {**labels, "outcome": outcome.result.value})
    _record_time(metrics.ACTION_LATENCY, workflow.info().start_time, labels)
    _log_event(
        "ended", action=outcome.action, result=outcome.result.value, status=outcome.status, failed=outcome.failed
    )
    return outcome


def count_refused_request(request: Request, refusal: Refusal) -> None:
    """Counts a refused request, and logs the reason."""
    labels = {"kind": kind_of(request.path), "action": request.action, "category": refusal.category.value}
    _increment_counter(metrics.REFUSALS, labels)
    _log_event("refused", action=request.action, category=refusal.category.value, reason=refusal.message)


def record_preemption_wait(request: Request, since: datetime) -> None:
    """Records how long a forced action waited for the actions below it."""
    _record_time(metrics.LOCK_WAIT, since, {"kind": kind_of(request.path), "action": request.action})


def _log_event(event: str, **fields: object) -> None:
    if not workflow.unsafe.is_replaying_history_events():
        _log.info(event, extra=fields)


def _increment_counter(name: str, labels: dict[str, str]) -> None:
    workflow.metric_meter().create_counter(name, metrics.COUNTER_HELP[name]).add(1, labels)


def _record_time(name: str, since: datetime, labels: dict[str, str]) -> None:
    timer = workflow.metric_meter().create_histogram_timedelta(name, metrics.TIMER_HELP[name])
    timer.record(workflow.now() - since, labels)
