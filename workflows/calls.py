"""Calls of activities by workflows: queues, timeouts, retries, and summaries for the Web UI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from activities.healing import HealActivities
    from activities.inventory import ActionWrites
    from domain import registry, wire
    from domain.errors import one_line
    from domain.limits import TASK_TIMEOUT
    from domain.model import (
        Admission,
        Chunk,
        Claim,
        Done,
        Ending,
        Grant,
        Holders,
        Move,
        Outcome,
        Query,
        Request,
        Result,
        Step,
        Stepped,
        Tally,
    )

T = TypeVar("T")
Asked = TypeVar("Asked")
CloudActivity = Callable[[Any, Chunk], Awaitable[Tally]]

# An unavailable store fails nothing: retries continue, and succeed soon after it is back.
STORE_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=100), backoff_coefficient=2, maximum_interval=timedelta(seconds=5)
)
STORE_ATTEMPT = timedelta(seconds=60)
CLOUD_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5))
CLOUD_HEARTBEAT = timedelta(seconds=5)  # a dead worker is noticed after this time
LONG_HISTORY = 4_000  # history events


def is_long() -> bool:
    """Tells whether a workflow that never ends should continue as new."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() > LONG_HISTORY


async def act(
    request: Request,
    close: workflow.ParentClosePolicy = workflow.ParentClosePolicy.ABANDON,
    cancel: workflow.ChildWorkflowCancellationType = workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
) -> Outcome:
    """Carries out a normal action on another object, as a user would request it: in a run of its own."""
    outcome: Outcome = await workflow.execute_child_workflow(
        registry.kind_at(request.path).verb(request.action).workflow,
        request,
        id=registry.owner_of(request.path, request.action),
        task_timeout=TASK_TIMEOUT,
        parent_close_policy=close,
        cancellation_type=cancel,
        static_summary=f"{request.action} {request.path}",
        result_type=Outcome,
    )
    return outcome


async def wake(activity: Callable[[Any, Asked], Awaitable[None]], what: Asked, summary: str) -> None:
    """Makes a clock read the store again, as something may be due earlier than it believes."""
    await workflow.execute_activity_method(
        activity, what, start_to_close_timeout=timedelta(seconds=10), retry_policy=STORE_RETRY, summary=summary
    )


async def run_local(activity: Callable[[Any, Asked], Awaitable[T]], what: Asked) -> T:
    """Runs a store-speed activity in this worker, with retries until it is done; it costs Temporal one marker."""
    return await workflow.execute_local_activity_method(
        activity, what, start_to_close_timeout=STORE_ATTEMPT, retry_policy=STORE_RETRY
    )


async def run_remote(
    activity: Callable[[Any, Asked], Awaitable[T]],
    what: Asked,
    patience: timedelta,
    summary: str,
    queue: str | None = None,
    retry: RetryPolicy = CLOUD_RETRY,
) -> T:
    """Runs an activity that calls providers. A cancel waits until nothing of it is in flight."""
    return await workflow.execute_activity_method(
        activity,
        what,
        task_queue=queue,
        schedule_to_close_timeout=patience,
        heartbeat_timeout=CLOUD_HEARTBEAT,
        retry_policy=retry,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
    )


def own_run() -> str:
    """Returns the run ID stored with the action: a reset changes the workflow's run ID, but continues the action."""
    return workflow.info().original_execution_run_id


async def begin(request: Request, digest: str) -> Admission:
    """Asks the inventory for admission."""
    info = workflow.info()
    claim = Claim(
        request=request,
        run=own_run(),
        at=workflow.now(),
        workflow=info.workflow_id,
        spec_digest=digest,
        started=info.workflow_start_time,
    )
    return await run_local(ActionWrites.begin, claim)


async def advance(grant: Grant, to: str, actor: str, message: str = "") -> bool:
    """Moves the object one step within its action. Returns False if no row of the actor leads there."""
    one = Move(path=grant.path, to=to, actor=actor, message=one_line(message))
    return (await move(grant, [one])).made


async def move(grant: Grant, moves: list[Move]) -> Stepped:
    """Moves objects that the action has locked, all or none; each needs a row of its table."""
    step = Step(path=grant.path, epoch=grant.epoch, at=workflow.now(), moves=moves)
    return await run_local(ActionWrites.advance, step)


async def finish(grant: Grant, result: Result, done: Done) -> Outcome:
    """Writes the end of the action and releases its locks."""
    ending = Ending.of(grant, result, done, workflow.now())
    return await run_local(ActionWrites.finish, ending)


async def has_ended() -> bool:
    """Tells whether this run's end is stored already: a replayed task may have stored it and then gone another way."""
    return await run_local(ActionWrites.has_ended, Query(run=own_run()))


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Awaits work that must not be cut off, as it may be stored already. Also tells whether a cancel came."""
    task, cut_off = asyncio.ensure_future(work), False
    while True:
        try:
            return await asyncio.shield(task), cut_off
        except asyncio.CancelledError:
            if task.done():
                raise
            cut_off = True


async def heal(holders: Holders) -> int:
    """Abandons the actions of dead lock holders."""
    return await workflow.execute_activity_method(
        HealActivities.heal_holders,
        holders,
        start_to_close_timeout=timedelta(seconds=10),
        schedule_to_close_timeout=timedelta(minutes=1),
        retry_policy=STORE_RETRY,
        summary="are the holders of the locks alive?",
    )


async def on_cloud(activity: CloudActivity, chunk: Chunk, patience: timedelta) -> Tally:
    """Runs an activity for a chunk on its cloud's queue."""
    csp, region = wire.split_placement(chunk.placement)
    summary = f"{chunk.action} {chunk.count} in {csp} {region}"
    return await run_remote(activity, chunk, patience, summary, wire.cloud_queue(csp))
