"""Requests to an MCI besides actions: continue or withdraw while it holds, and surveys."""

from __future__ import annotations

from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ActivityError
from temporalio.service import RPCError, RPCStatusCode

from activities.refusals import refusal_in
from client.actions import ActionClient
from client.errors import Unanswered
from client.launching import USED_UP, said
from domain import wire
from domain.errors import Category, Refused
from domain.limits import TASK_TIMEOUT
from domain.mci.messages import HOLDING, SURVEY_VMS, Decision, Survey, SurveyReport


async def decide(asking: ActionClient, path: str, word: str, decision: Decision) -> str:
    """Sends `continue` or `withdraw` to an MCI that holds. Returns the run; refuses if it does not hold."""
    running = await asking.newest(path)
    if running is None or running.status is not WorkflowExecutionStatus.RUNNING:
        raise await _not_holding(asking, path, word)
    await asking.someone_polls(wire.ACTIONS_QUEUE)
    handle = asking.client.get_workflow_handle(path, run_id=running.run_id)
    try:
        await handle.execute_update(word, decision, result_type=str)
    except WorkflowUpdateFailedError as error:
        if refusal := refusal_in(error.cause):
            raise refusal.error() from error
        raise await _not_holding(asking, path, word) from error  # another action runs, without this update
    except RPCError as error:
        if said(error, USED_UP):
            await _signal(asking, path, running.run_id, word, decision)
            return running.run_id
        if error.status is not RPCStatusCode.NOT_FOUND:  # not found: it has ended
            raise
        raise await _not_holding(asking, path, word) from error
    return running.run_id


async def _signal(asking: ActionClient, path: str, run: str, word: str, decision: Decision) -> None:
    """Sends the decision as a signal, as the run has reached Temporal's limit of updates."""
    if not (await asking.progress(path, run)).step.startswith(HOLDING):
        raise await _not_holding(asking, path, word)
    await asking.client.get_workflow_handle(path, run_id=run).signal(word, decision)


async def survey(asking: ActionClient, wish: Survey) -> SurveyReport:
    """Surveys an MCI against its clouds. Concurrent requests share one survey."""
    await asking.someone_polls(wire.ACTIONS_QUEUE)
    role = ("reconcile" if wish.reconcile else "refresh") + ("-dry-run" if wish.dry_run else "")
    try:
        report: SurveyReport = await asking.client.execute_workflow(
            SURVEY_VMS,
            wish,
            id=wire.companion(wish.path, role),
            task_queue=wire.ACTIONS_QUEUE,
            task_timeout=TASK_TIMEOUT,
            result_type=SurveyReport,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"{role} {wish.path}",
        )
    except WorkflowFailureError as failure:
        cause = failure.cause.cause if isinstance(failure.cause, ActivityError) else failure.cause
        if refusal := refusal_in(cause):
            raise refusal.error() from failure
        raise Unanswered(f"the clouds could not be asked: {cause}") from failure
    return report


async def _not_holding(asking: ActionClient, path: str, word: str) -> Refused:
    view = await asking.get(path)
    message = f"{word} is not allowed for MCI under {view.status}: it is not holding"
    return Refused(Category.NOT_ALLOWED, message, f"starter mci status {path}")
