"""How an action is admitted: begin, and what to do about lock holders that block it."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from activities.retry import growing_pauses
    from domain import registry
    from domain.errors import Category, Refused
    from domain.model import Admission, Refusal, Request
    from domain.waitqueue import LockHolders
    from workflows import calls, measuring

FORCE_TIMEOUT = timedelta(seconds=30)  # for the actions below to clean up, after a request with force


async def request_admission(request: Request, digest: str) -> Admission:
    """Asks for admission. If locks refuse it, abandons their dead holders; a request that may preempt also cancels the
    living ones at and below its object.

    `digest` is that of the spec as it was requested.
    """
    admission = await calls.begin_action(request, digest)
    if (
        admission.refusal
        and admission.refusal.holders
        and await calls.abandon_dead_holders(LockHolders(holders=admission.refusal.holders))
    ):
        admission = await calls.begin_action(request, digest)
    if registry.may_preempt(request) and admission.refusal and admission.refusal.holders:
        return await _cancel_actions_below(request, digest, admission)
    return admission


def why_wrong_workflow(request: Request) -> Refusal | None:
    """Returns why this run cannot carry out the request: its workflow ID or type belongs to something else.

    Anybody can start a workflow by hand. The type decides what is done, and the ID what Temporal excludes meanwhile.
    """
    info = workflow.info()
    try:
        owner = registry.workflow_id_of(request.path, request.action)
        fitting = registry.verb_of(request).workflow
    except Refused as refused:
        return Refusal.from_error(refused)
    if info.workflow_id != owner:
        return _invalid_request(f"the workflow ID must be the object's path: {owner}", "start it with that ID")
    if info.workflow_type != fitting:
        # Temporal's own UI and CLI show the message alone, so it names the type.
        message = f"{info.workflow_type} does not {request.action} {request.path}, but {fitting} does"
        return _invalid_request(message, f"start it with the workflow type {fitting}")
    return None


def _invalid_request(message: str, hint: str) -> Refusal:
    return Refusal(category=Category.INVALID, message=message, hint=hint)


async def _cancel_actions_below(request: Request, digest: str, admission: Admission) -> Admission:
    """Cancels the actions below the object, for force, and waits for them to clean up. Leaves actions above alone."""
    assert admission.refusal
    if not all(holder.owner.startswith(f"{request.path}:") for holder in admission.refusal.holders):
        return admission
    cancelled: set[str] = set()
    pauses, since = growing_pauses(0.1, 5), workflow.now()
    while admission.refusal and admission.refusal.holders and workflow.now() < since + FORCE_TIMEOUT:
        for holder in admission.refusal.holders:
            if holder.run in cancelled:
                continue
            if not await _try_cancel_run(holder.owner, holder.run) and not await _try_cancel_run(holder.owner, None):
                workflow.logger.info("%s ended before it could be cancelled", holder.owner)
            cancelled.add(holder.run)
        await workflow.sleep(next(pauses), summary="cancelled actions below are cleaning up")
        admission = await calls.begin_action(request, digest)
    measuring.record_preemption_wait(request, since)
    return admission


async def _try_cancel_run(owner: str, run: str | None) -> bool:
    """Cancels a run; False if it is not open. A run that was reset continues under another run ID."""
    try:
        await workflow.get_external_workflow_handle(owner, run_id=run).cancel()
    except FailureError:
        return False
    return True
