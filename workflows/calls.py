"""Calls of activities by workflows: queues, timeouts, retries, and summaries for the Web UI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ChildWorkflowError, FailureError, WorkflowAlreadyStartedError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.fairness import tenant_priority
    from activities.healing import HealingActivities
    from activities.inventory import ActionActivities
    from activities.refusals import refusal_of_error
    from activities.retry import STORE_RETRY, growing_pauses
    from domain import registry, wire
    from domain.errors import Category, format_one_line
    from domain.limits import TASK_TIMEOUT
    from domain.model import (
        ActionEnding,
        ActionResult,
        Admission,
        BeginRequest,
        Grant,
        Move,
        Outcome,
        ReadQuery,
        Refusal,
        Request,
        SignedMessage,
        Step,
        StepResult,
        WorkReport,
    )
    from domain.requests import CheckedMessages, MessageCheck, MessageChecks, SentMessage, spec_digest
    from domain.waitqueue import LockHolders
    from workflows.summary import error_text

T = TypeVar("T")
Asked = TypeVar("Asked")
Activity = Callable[[Any, Asked], Awaitable[T]]

STORE_ATTEMPT_TIMEOUT = timedelta(seconds=60)
# A dead worker is noticed after this time. A heartbeat is sent each second; a loop with a hundred calls may be late.
HEARTBEAT = timedelta(seconds=5)
LONG_HISTORY_EVENTS = 4_000  # history events


def should_continue_as_new() -> bool:
    """Tells whether a workflow that never ends should continue as new."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() > LONG_HISTORY_EVENTS


async def run_child_action(request: Request, busy_for: timedelta = timedelta(), leave_running: bool = False) -> str:
    """Carries out a normal action on another object, as a user would request it. Returns the error, or an empty string.

    While the object is busy it is requested again, for that long. If our own work is cancelled, so is the action, and
    its end is awaited, unless it may be left running. If this workflow ends, the action goes on.
    """
    until, pauses = workflow.now() + busy_for, growing_pauses(1, 5)
    while True:
        why, busy = await _try_child_action(request, leave_running)
        if not busy or workflow.now() >= until:
            return why
        await workflow.sleep(next(pauses), summary=f"{request.path} is busy")


async def _try_child_action(request: Request, leave_running: bool) -> tuple[str, bool]:
    """Returns the error of the action, and whether it was only that the object was busy."""
    cancellation = workflow.ChildWorkflowCancellationType
    try:
        outcome: Outcome = await workflow.execute_child_workflow(
            registry.verb_of(request).workflow,
            request,
            id=registry.workflow_id_of(request.path, request.action),
            task_timeout=TASK_TIMEOUT,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=cancellation.ABANDON if leave_running else cancellation.WAIT_CANCELLATION_COMPLETED,
            static_summary=f"{request.action} {request.path}",
            priority=tenant_priority(request.path),
            result_type=Outcome,
        )
    except WorkflowAlreadyStartedError:
        return f"409 Conflict: other action currently happening on {request.path}", True
    except ChildWorkflowError as error:
        own = asyncio.current_task()
        if is_cancelled_exception(error) and own and own.cancelling():  # not if somebody else has cancelled the action
            raise
        refusal = refusal_of_error(error.cause)
        return error_text(error), refusal is not None and refusal.category is Category.CONFLICT
    partly = f"{outcome.failed} of {outcome.done + outcome.failed} failed"
    return partly if outcome.result is ActionResult.PARTIAL else "", False


async def run_local_activity(activity: Activity[Asked, T], what: Asked) -> T:
    """Runs a store-speed activity in this worker, with retries until it is done; it costs Temporal one marker."""
    return await workflow.execute_local_activity_method(
        activity, what, start_to_close_timeout=STORE_ATTEMPT_TIMEOUT, retry_policy=STORE_RETRY
    )


async def run_short_activity(
    activity: Activity[Asked, T],
    what: Asked,
    attempt: timedelta,
    summary: str,
    patience: timedelta | None = None,
    queue: str | None = None,
    retry: RetryPolicy = STORE_RETRY,
) -> T:
    """Runs an activity that is too short for heartbeats."""
    return await workflow.execute_activity_method(
        activity,
        what,
        task_queue=queue,
        start_to_close_timeout=attempt,
        schedule_to_close_timeout=patience,
        retry_policy=retry,
        summary=summary,
        priority=tenant_priority(workflow.info().workflow_id),
    )


async def run_provider_activity(
    activity: Activity[Asked, T],
    what: Asked,
    patience: timedelta,
    summary: str,
    queue: str | None = None,
    attempt: timedelta | None = None,
) -> T:
    """Runs an activity that calls providers. A cancel waits until nothing of it is in flight."""
    return await workflow.execute_activity_method(
        activity,
        what,
        task_queue=queue,
        start_to_close_timeout=attempt,
        schedule_to_close_timeout=patience,
        heartbeat_timeout=HEARTBEAT,
        retry_policy=STORE_RETRY,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
        priority=tenant_priority(workflow.info().workflow_id),
    )


async def run_on_cloud_queue(
    activity: Activity[Asked, T], what: Asked, place: str, patience: timedelta, verb: str
) -> T:
    """Runs an activity on the queue of a place's cloud."""
    queue = wire.cloud_queue(wire.split_placement(place)[0])
    return await run_provider_activity(activity, what, patience, f"{verb} in {place}", queue)


def first_run_id() -> str:
    """Returns the first run ID of this workflow, under which the store knows the action: a reset gives a new one."""
    return workflow.info().original_execution_run_id


async def begin_action(request: Request, digest: str) -> Admission:
    """Asks the inventory for admission."""
    return await run_local_activity(ActionActivities.begin_action, _claim_of_run(request, digest))


async def examine_request(activity: Activity[BeginRequest, T], request: Request) -> T | Refusal:
    """Runs a family's examination of a request, before begin. The guard of activities judges the sender first."""
    try:
        return await run_local_activity(activity, _claim_of_run(request, spec_digest(request)))
    except FailureError as error:  # of a local activity it is the cause itself
        if (refusal := refusal_of_error(error) or refusal_of_error(error.cause)) is None:
            raise
        return refusal


def _claim_of_run(request: Request, digest: str) -> BeginRequest:
    info = workflow.info()
    return BeginRequest(
        request=request,
        run=first_run_id(),
        at=workflow.now(),
        proof_run=info.run_id,
        workflow=info.workflow_id,
        spec_digest=digest,
        started=info.workflow_start_time,
        parent=info.parent.workflow_id if info.parent else "",
        parent_run=info.parent.run_id if info.parent else "",
    )


async def check_message(
    verb: str, message: SignedMessage, only_under: str = "", places: Sequence[str] = ()
) -> Refusal | None:
    """Returns why the sender of a message may not send it to this workflow, or not now; None if it may.

    `places`: those in clouds that the object will use because of it.
    """
    return await run_local_activity(ActionActivities.check_message, _message_check(verb, message, only_under, places))


async def check_messages(
    messages: Sequence[tuple[str, SignedMessage]], only_under: str, places: Mapping[str, Sequence[str]]
) -> CheckedMessages:
    """Returns which of these messages, each with its verb, is the first that may be sent to this workflow now.

    `places`, by verb: those in clouds that the object will use because of it.
    """
    checks = [_message_check(verb, message, only_under, places.get(verb, ())) for verb, message in messages]
    return await run_local_activity(ActionActivities.check_messages, MessageChecks(checks=checks))


async def filter_allowed_messages(verb: str, messages: Sequence[tuple[int, SignedMessage]]) -> list[int]:
    """Returns which of these messages, each with its number in this run, may be sent to this workflow. A proof is good
    for one number: a message that is sent again counts for nothing."""
    checks = [_message_check(verb, message).model_copy(update={"number": number}) for number, message in messages]
    checked = await run_local_activity(ActionActivities.check_messages, MessageChecks(checks=checks, each=True))
    return [messages[index][0] for index in checked.all_allowed]


def _message_check(verb: str, message: SignedMessage, only_under: str = "", places: Sequence[str] = ()) -> MessageCheck:
    path = wire.object_path_of(workflow.info().workflow_id)
    sent = SentMessage.from_message(message)
    return MessageCheck(
        path=path, verb=verb, at=workflow.now(), message=sent, only_under=only_under, places=list(places)
    )


async def advance_object(grant: Grant, to: str, actor: str, message: str = "") -> bool:
    """Moves the object one step within its action. Returns False if no row of the actor leads there."""
    one = Move(path=grant.path, to=to, actor=actor, message=format_one_line(message))
    return (await move_objects(grant, [one])).made


def make_key() -> str:
    """Returns a new key of this run. A task that is replayed, as its worker died, makes the same one again."""
    return str(workflow.uuid4())


async def move_objects(grant: Grant, moves: list[Move]) -> StepResult:
    """Moves objects that the action has locked, all or none; each needs a row of its table."""
    step = Step(path=grant.path, epoch=grant.epoch, at=workflow.now(), moves=moves, key=make_key())
    return await run_local_activity(ActionActivities.apply_step, step)


async def finish_action(grant: Grant, result: ActionResult, done: WorkReport) -> Outcome:
    """Writes the end of the action and releases its locks."""
    ending = ActionEnding.from_grant(grant, result, done, workflow.now())
    return await run_local_activity(ActionActivities.finish_action, ending)


async def has_run_ended() -> bool:
    """Tells whether this run's end is stored already: a replayed task may have stored it and then gone another way."""
    return await run_local_activity(ActionActivities.has_run_ended, ReadQuery(run=first_run_id()))


async def abandon_dead_holders(holders: LockHolders) -> int:
    """Abandons the actions of dead lock holders."""
    summary = "are the holders of the locks alive?"
    attempt, patience = timedelta(seconds=10), timedelta(minutes=1)
    return await run_short_activity(HealingActivities.heal_holders, holders, attempt, summary, patience)
