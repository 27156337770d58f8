"""Translates what Temporal knows of an action into refusals and outcomes."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError

from activities.refusals import refusal_of_error
from client.runs import ActionRun
from domain import registry, wire
from domain.errors import Category
from domain.model import ActionResult, LockHolder, Outcome, Refusal, Request


def conflict_refusal(request: Request, running: ActionRun | None) -> Refusal:
    """Returns the 409 that names the running action. Its hint offers --force where that would take over."""
    path = registry.workflow_id_of(request.path, request.action)
    forced = registry.may_preempt(request.model_copy(update={"force": True}))
    take_over = "; or take over: add --force" if forced and not request.force else ""
    message, hint = f"409 Conflict: other action currently happening on {path}", f"wait for it: starter wait {path}"
    if running is None:
        return Refusal(category=Category.CONFLICT, message=f"{message}: an action", hint=f"{hint}{take_over}")
    message += f": {running.action} since {running.start_time:%Y-%m-%d %H:%M:%SZ}"
    obstacle, help_hint = running.describe_obstacle()
    return Refusal(
        category=Category.CONFLICT,
        message=f"{message}; {obstacle}" if obstacle else message,
        hint=help_hint or f"{registry.busy_hint(path)}{hint}{take_over}",
        holders=[LockHolder(owner=path, action=running.action, run=running.run_id, since=running.start_time)],
    )


def outcome_of_failure(path: str, cause: BaseException | None) -> Outcome:
    """Returns the outcome of an action that did not complete. Raises if it was refused."""
    if isinstance(cause, ApplicationError) and cause.type == wire.ACTION_FAILED_ERROR_TYPE and cause.details:
        return Outcome.model_validate(cause.details[0])
    if (refusal := refusal_of_error(cause)) is not None:
        raise refusal.to_error()
    if isinstance(cause, CancelledError):
        return minimal_outcome(path, ActionResult.CANCELLED, "cancelled")
    if isinstance(cause, TerminatedError):
        return minimal_outcome(
            path, ActionResult.FAILED, "terminated from outside; the next action repairs what it left"
        )
    return minimal_outcome(path, ActionResult.FAILED, str(cause))


def minimal_outcome(path: str, result: ActionResult, message: str) -> Outcome:
    """Returns a minimal outcome for an action that recorded none."""
    return Outcome(path=path, action="", result=result, status="", message=message)
