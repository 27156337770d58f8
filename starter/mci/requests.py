"""Requests to an MCI besides actions: continue or withdraw while it holds, and surveys."""

from __future__ import annotations

from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ActivityError
from temporalio.service import RPCError, RPCStatusCode

from activities.refusals import refusal_of_error
from client.actions import ActionClient
from client.errors import Unanswered
from client.launching import CLOSING_ERROR, UPDATE_LIMIT_ERROR, message_contains
from client.patience import run_with_timeout
from domain import wire
from domain.errors import Category, Refused
from domain.limits import TASK_TIMEOUT
from domain.mci.messages import HOLDING, SURVEY_VMS, HoldDecision, SurveyReport, SurveyRequest
from domain.statetable import NONE

DECISION_SECONDS = 30.0  # for an MCI that holds to take a decision


async def send_decision(
    client: ActionClient, path: str, word: str, decision: HoldDecision, seconds: float = DECISION_SECONDS
) -> str:
    """Sends `continue` or `withdraw` to an MCI that holds. Returns the run; refuses if it does not hold."""
    decision = client.message_signer.sign(decision, f"{word} {path}")
    running = await client.newest_run(path)
    if running is None or not running.is_open:
        raise await _not_holding_refusal(client, path, word)
    obstacle, hint = running.describe_obstacle()
    if obstacle:
        raise Refused(Category.CONFLICT, f"{running.action} on {path} cannot hear {word}: {obstacle}", hint)
    await client.check_polled(wire.ACTIONS_QUEUE)
    handle = client.client.get_workflow_handle(path, run_id=running.run_id)
    try:
        await run_with_timeout(seconds, handle.execute_update(word, decision, result_type=str))
    except TimeoutError as error:
        raise Unanswered(
            f"{path} did not answer within {seconds:g} s: it has no worker, or is paused; {word} may still come",
            f"starter doctor; then starter explain {path}",
        ) from error
    except WorkflowUpdateFailedError as error:
        if refusal := refusal_of_error(error.cause):
            raise refusal.to_error() from error
        raise await _not_holding_refusal(client, path, word) from error  # another action runs, without this update
    except RPCError as error:
        if message_contains(error, UPDATE_LIMIT_ERROR):
            await _signal_decision(client, path, running.run_id, word, decision)
            return running.run_id
        if error.status is not RPCStatusCode.NOT_FOUND and not message_contains(error, CLOSING_ERROR):
            raise  # else it has ended, or is about to
        raise await _not_holding_refusal(client, path, word) from error
    return running.run_id


async def _signal_decision(client: ActionClient, path: str, run: str, word: str, decision: HoldDecision) -> None:
    """Sends the decision as a signal, as the run has reached Temporal's limit of updates."""
    if not (await client.read_progress(path, run)).step.startswith(HOLDING):
        raise await _not_holding_refusal(client, path, word)
    await client.client.get_workflow_handle(path, run_id=run).signal(word, decision)


async def run_survey(client: ActionClient, wish: SurveyRequest) -> SurveyReport:
    """Surveys an MCI against its clouds. Concurrent requests share one survey."""
    await client.check_polled(wire.ACTIONS_QUEUE)
    role = ("reconcile" if wish.reconcile else "refresh") + ("-dry-run" if wish.dry_run else "")
    try:
        report: SurveyReport = await client.client.execute_workflow(
            SURVEY_VMS,
            client.sign_query("plan_survey", wish),
            id=wire.companion_id(wish.path, role),
            task_queue=wire.ACTIONS_QUEUE,
            task_timeout=TASK_TIMEOUT,
            result_type=SurveyReport,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"{role} {wish.path}",
        )
    except WorkflowFailureError as failure:
        cause = failure.cause.cause if isinstance(failure.cause, ActivityError) else failure.cause
        if refusal := refusal_of_error(cause):
            raise refusal.to_error() from failure
        raise Unanswered(f"the clouds could not be asked: {cause}") from failure
    return report


async def _not_holding_refusal(client: ActionClient, path: str, word: str) -> Refused:
    view = await client.read_object(path)
    message, hint = (
        f"{word} is not allowed for MCI under {view.status}: it is not holding",
        f"see: starter explain {path}",
    )
    newest = await client.newest_run(path)
    if view.target_action != NONE and not (newest and newest.is_open):
        message, hint = f"{message}: its {view.target_action} was cut off", f"restore it now: starter heal; {hint}"
    return Refused(Category.NOT_ALLOWED, message, hint)
