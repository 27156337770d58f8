"""Ask for an action, wait for its outcome, read the inventory: everything through Temporal."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from pydantic import BaseModel
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    ActivityFailureError,
    Client,
    WithStartWorkflowOperation,
    WorkflowContinuedAsNewError,
    WorkflowExecutionDescription,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import (
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
)
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from domain import registry, wire
from domain.errors import Category
from domain.model import Admission, Outcome, Progress, Refusal, Request, Result
from domain.paths import kind_of, short
from starter.errors import NoWorker, Unanswered

T = TypeVar("T", bound=BaseModel)

TASK_TIMEOUT = timedelta(seconds=5)  # bounds a lost dispatch; the server's default is twice that
ADMISSION_SECONDS = 15
PREEMPT_SECONDS = 60
READ_SECONDS = 10
POLLERS_SECONDS = 2  # a worker that has just been started is not seen at once


@dataclass(frozen=True)
class Ticket:
    """An answered request: which run carries it out, or why none does."""

    path: str
    run: str
    admission: Admission


class Asking:
    """What a user can do with a Temporal client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, request: Request) -> Ticket:
        """Start an action and wait until it is admitted or refused. A busy object is refused by Temporal itself."""
        registry.parse_spec(request)
        await self.someone_polls(wire.ACTIONS_QUEUE)
        try:
            return await self._start(request)
        except WorkflowAlreadyStartedError:
            return await self._busy(request)

    async def outcome(self, path: str, run: str | None = None) -> Outcome:
        """Wait for the end of an action. Failed and cancelled actions have outcomes too."""
        handle: WorkflowHandle[object, Outcome] = self.client.get_workflow_handle(path, run_id=run, result_type=Outcome)
        try:
            return await handle.result(follow_runs=False)
        except WorkflowFailureError as failure:
            return _failed(path, failure.cause)
        except WorkflowContinuedAsNewError:
            return _ended(path, Result.CANCELLED, "preempted by a forced action")

    async def progress(self, path: str, run: str | None = None) -> Progress:
        """How far a running action is."""
        seen: Progress = await self.client.get_workflow_handle(path, run_id=run).query(
            wire.PROGRESS, result_type=Progress
        )
        return seen

    async def cancel(self, path: str) -> None:
        """Ask the running action to clean up and end."""
        await self.client.get_workflow_handle(path).cancel()

    async def running(self, path: str) -> WorkflowExecutionDescription | None:
        """The newest action on a path, running or not; None if there never was one."""
        try:
            return await self.client.get_workflow_handle(path).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def read(self, activity: str, query: BaseModel, answer: type[T]) -> T:
        """Run a read as a standalone activity. Refused by the worker: Refused here."""
        await self.someone_polls(wire.ACTIONS_QUEUE)
        try:
            found: T = await self.client.execute_activity(
                activity,
                query,
                id=f"{activity}-{uuid.uuid4().hex[:12]}",
                task_queue=wire.ACTIONS_QUEUE,
                result_type=answer,
                schedule_to_close_timeout=timedelta(seconds=READ_SECONDS),
                retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=2)),
            )
            return found
        except ActivityFailureError as failure:
            if (refusal := _refusal_in(failure.cause)) is not None:
                raise refusal.error() from failure
            raise Unanswered(f"the worker could not answer: {failure.cause}") from failure

    async def someone_polls(self, queue: str) -> None:
        """NoWorker if nobody would take our work: better than waiting for ever."""
        request = DescribeTaskQueueRequest(
            namespace=self.client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        deadline = asyncio.get_running_loop().time() + POLLERS_SECONDS
        while not (await self.client.workflow_service.describe_task_queue(request)).pollers:
            if asyncio.get_running_loop().time() > deadline:
                raise NoWorker(queue)
            await asyncio.sleep(0.1)

    async def _start(self, request: Request) -> Ticket:
        operation = _with_start(request)
        try:
            async with asyncio.timeout(ADMISSION_SECONDS):
                admission = await self.client.execute_update_with_start_workflow(
                    wire.ADMIT, request, result_type=Admission, start_workflow_operation=operation
                )
        except TimeoutError as error:
            raise Unanswered(f"{request.path} was asked for, but no worker has answered yet") from error
        finally:
            run = await _run_of(operation)
        return Ticket(request.path, run, admission)

    async def _busy(self, request: Request) -> Ticket:
        """Somebody's action runs on this very object: ours from an earlier try, one to preempt, or a conflict."""
        running = await self.running(request.path)
        memo = await running.memo() if running else {}
        if request.request_id and memo.get("request_id") == request.request_id and running:
            handle = self.client.get_workflow_handle(request.path, run_id=running.run_id)
            return Ticket(
                request.path, running.run_id, await handle.execute_update(wire.ADMIT, request, result_type=Admission)
            )
        if request.force:
            return await self._preempt(request)
        action, since = memo.get("action", "an action"), running.start_time if running else None
        refusal = Refusal(
            category=Category.CONFLICT,
            message=f"409 Conflict: other action currently happening on {request.path}: {action} since "
            f"{since:%Y-%m-%d %H:%M:%SZ}",
            hint=f"wait for it: starter attach {request.path}; or take over: add --force",
        )
        return Ticket(request.path, running.run_id if running else "", Admission(refusal=refusal))

    async def _preempt(self, request: Request) -> Ticket:
        """Take over: the running action cleans up and continues as ours. If it does not in time, it is terminated."""
        handle = self.client.get_workflow_handle(request.path)
        try:
            async with asyncio.timeout(PREEMPT_SECONDS):
                await handle.execute_update(wire.PREEMPT, request, result_type=str)
                admission = await handle.execute_update(wire.ADMIT, request, result_type=Admission)
            described = await handle.describe()
            return Ticket(request.path, described.run_id, admission)
        except TimeoutError:
            await handle.terminate(reason=f"did not make way for {request.action} in {PREEMPT_SECONDS} s")
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # not found: it ended in the meantime
                raise
        return await self._start(request)


def _with_start(request: Request) -> WithStartWorkflowOperation[object, object]:
    verb = registry.kind_at(request.path).verb(request.action)
    return WithStartWorkflowOperation(
        verb.workflow,
        request,
        id=request.path,
        task_queue=wire.ACTIONS_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        task_timeout=TASK_TIMEOUT,
        memo=wire.memo(request),
        search_attributes=_attributes(request),
        static_summary=f"{request.action} {short(request.path)}",
        static_details=f"Requested by **{request.requested_by or 'nobody named'}**\n\n{request.reason}",
    )


def _attributes(request: Request) -> TypedSearchAttributes:
    told = {"ObjectPath": request.path, "ObjectKind": kind_of(request.path), "Action": request.action}
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in told.items()]
    )


def _refusal_in(cause: BaseException | None) -> Refusal | None:
    if isinstance(cause, ApplicationError) and cause.type == wire.REFUSED and cause.details:
        return Refusal.model_validate(cause.details[0])
    return None


def _failed(path: str, cause: BaseException | None) -> Outcome:
    if isinstance(cause, ApplicationError) and cause.type == wire.ACTION_FAILED and cause.details:
        return Outcome.model_validate(cause.details[0])
    if (refusal := _refusal_in(cause)) is not None:
        raise refusal.error()
    if isinstance(cause, CancelledError):
        return _ended(path, Result.CANCELLED, "cancelled")
    if isinstance(cause, TerminatedError):
        return _ended(path, Result.FAILED, "terminated from outside; the next action repairs what it left")
    return _ended(path, Result.FAILED, str(cause))


def _ended(path: str, result: Result, message: str) -> Outcome:
    return Outcome(path=path, action="", result=result, status="", message=message)


async def _run_of(operation: WithStartWorkflowOperation[object, object]) -> str:
    """The run that was started. Always asked for: else the event loop complains that nobody took the failure."""
    try:
        return (await operation.workflow_handle()).first_execution_run_id or ""
    except (RPCError, WorkflowAlreadyStartedError):
        return ""
