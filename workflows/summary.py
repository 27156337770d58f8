"""The texts of an action: in its outcome, in the failure that it closes with, and in the Web UI."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError, ChildWorkflowError, FailureError

with workflow.unsafe.imports_passed_through():
    from domain import wire
    from domain.errors import format_one_line
    from domain.model import ActionResult, Grant, Outcome, Progress, WorkReport

UNKNOWN_MESSAGE = "what became of the work is unknown"


def prepend_reason(done: WorkReport, why: str) -> WorkReport:
    """Returns a copy of `done` with the reason before its own message."""
    return done.model_copy(update={"message": format_one_line(f"{why}; {done.message}" if done.message else why)})


def count_done_quarters(seen: Progress) -> int:
    """Returns how many quarters of the targets are done or have failed."""
    return 4 * (seen.done + seen.failed) // seen.targets if seen.targets else 0


def list_called_clouds(grant: Grant) -> list[str]:
    """Returns the clouds that the action calls."""
    return sorted({wire.split_placement(chunk.placement)[0] for chunk in grant.chunks})


def outcome_of_no_work(grant: Grant) -> Outcome:
    """Returns the outcome of an action whose object is already as wanted."""
    return Outcome(
        path=grant.path,
        action=grant.action,
        result=ActionResult.ALREADY,
        status=grant.then,
        skipped=grant.skipped,
        message="nothing to do",
    )


def error_text(error: BaseException) -> str:
    """Returns why the work failed, without class names."""
    cause = error.cause if isinstance(error, ActivityError | ChildWorkflowError) and error.cause else error
    return format_one_line(
        cause.message if isinstance(cause, FailureError) else cause
    )  # str() would begin with the type


def failure_message(outcome: Outcome) -> str:
    """Returns the message of the failure that a run closes with: object, action, first error."""
    first = outcome.troubles[0] if outcome.troubles else None
    reason = f"{first.path}: {first.error}" if first else outcome.message
    return f"{outcome.action} of {outcome.path} failed: {reason}"


def progress_markdown(seen: Progress) -> str:
    """Returns the progress as Markdown, for the Web UI."""
    step = f"- now: {seen.step}\n" if seen.step else ""
    counted = f"- done: **{seen.done}** of {seen.targets}\n- failed: **{seen.failed}**\n" if seen.targets else ""
    return f"### {seen.action} {seen.path}\n\n- phase: **{seen.phase}**\n{step}{counted}"
