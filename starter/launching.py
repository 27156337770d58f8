"""How an action is started: its workflow with ID, memo and search attributes, and a time for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from temporalio.client import WithStartWorkflowOperation
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
)
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from domain import registry, wire
from domain.limits import TASK_TIMEOUT
from domain.model import Request
from domain.paths import kind_of, short

R = TypeVar("R")

MARK = "asked"  # in the memo: by it a start is known to be ours


async def within(seconds: float, work: Awaitable[R]) -> R:
    """The work's result, or TimeoutError. The SDK turns a cancel into an error of its own, so it gets none of ours."""
    task = asyncio.ensure_future(work)
    try:
        if not (await asyncio.wait({task}, timeout=seconds))[0]:
            raise TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else will look


def workflow_id(request: Request) -> str:
    """The ID under which a request is carried out."""
    return registry.owner_of(request.path, request.action)


def with_start(request: Request, mark: str) -> WithStartWorkflowOperation[object, object]:
    """The start of the action's workflow, to be sent together with the question whether it is let in."""
    verb = registry.kind_at(request.path).verb(request.action)
    return WithStartWorkflowOperation(
        verb.workflow,
        request,
        id=workflow_id(request),
        task_queue=wire.ACTIONS_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        task_timeout=TASK_TIMEOUT,
        memo={**wire.memo(request), MARK: mark},
        search_attributes=_attributes(request),
        static_summary=f"{request.action} {short(request.path)}",
        static_details=f"Requested by **{request.requested_by or 'nobody named'}**\n\n{request.reason}",
    )


def _attributes(request: Request) -> TypedSearchAttributes:
    rows = registry.kind_at(request.path).table.rows
    during = next((str(row.during) for row in rows if row.action == request.action and row.during), request.action)
    told = {
        "ObjectPath": request.path,
        "ObjectKind": kind_of(request.path),
        "Action": request.action,
        "Phase": during,
    }
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in told.items()]
    )


async def run_of(operation: WithStartWorkflowOperation[object, object]) -> str:
    """The run that was started. Always asked for: else the event loop complains that nobody took the failure."""
    try:
        return (await operation.workflow_handle()).first_execution_run_id or ""
    except (TemporalError, RPCError, asyncio.CancelledError):  # the SDK keeps a cancelled request as a CancelledError
        return ""
