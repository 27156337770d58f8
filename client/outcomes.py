"""Translates what Temporal knows of an action into refusals and outcomes."""

from __future__ import annotations

from temporalio.client import WorkflowExecutionDescription
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError

from activities.refusals import refusal_in
from domain import registry, wire
from domain.errors import Category
from domain.model import Holder, Outcome, Refusal, Request, Result

_ACTION = SearchAttributeKey.for_keyword("Action")


def action_of(run: WorkflowExecutionDescription) -> str:
    """Returns the action that a run was started for; empty for a workflow started by hand, until it ends."""
    return run.typed_search_attributes.get(_ACTION) or "an action"


def conflict(request: Request, running: WorkflowExecutionDescription | None) -> Refusal:
    """Returns the 409 that names the running action. Its hint offers --force where that would take over."""
    path = registry.owner_of(request.path, request.action)
    forced = registry.takes_over(request.model_copy(update={"force": True}))
    take_over = "; or take over: add --force" if forced and not request.force else ""
    since = f" since {running.start_time:%Y-%m-%d %H:%M:%SZ}" if running else ""
    action = action_of(running) if running else "an action"
    holders = [Holder(owner=path, action=action, run=running.run_id, since=running.start_time)] if running else []
    return Refusal(
        category=Category.CONFLICT,
        message=f"409 Conflict: other action currently happening on {path}: {action}{since}",
        hint=f"{registry.busy(path)}wait for it: starter wait {path}{take_over}",
        holders=holders,
    )


def failed(path: str, cause: BaseException | None) -> Outcome:
    """Returns the outcome of an action that did not complete. Raises if it was refused."""
    if isinstance(cause, ApplicationError) and cause.type == wire.ACTION_FAILED and cause.details:
        return Outcome.model_validate(cause.details[0])
    if (refusal := refusal_in(cause)) is not None:
        raise refusal.error()
    if isinstance(cause, CancelledError):
        return ended(path, Result.CANCELLED, "cancelled")
    if isinstance(cause, TerminatedError):
        return ended(path, Result.FAILED, "terminated from outside; the next action repairs what it left")
    return ended(path, Result.FAILED, str(cause))


def ended(path: str, result: Result, message: str) -> Outcome:
    """Returns a minimal outcome for an action that recorded none."""
    return Outcome(path=path, action="", result=result, status="", message=message)
