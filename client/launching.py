"""How an action is started: its workflow with ID, memo and search attributes, and a time for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
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
from domain.model import Admission, Request
from domain.paths import kind_of, short

R = TypeVar("R")

MARK = "asked"  # in the memo: by it a start is known to be ours

# What Temporal says when a question was not answered: a task of the worker failed just then, or is failing or overdue
# (its worker died, or has too much to do), or the call itself was repeated on the way.
TASK_FAILED = "unexpected workflow task failure"
OVERDUE = "Workflow Task in failed state"
DEAF = (TASK_FAILED, OVERDUE)
STARTED_ANYWAY = (TASK_FAILED, "StartDeduped", OVERDUE)  # the start was done, the question with it was not answered
USED_UP = "total number of distinct updates"  # a run answers 2,000 different ones


@dataclass(frozen=True)
class Ticket:
    """An answered request: which run carries it out, or why none does. `path` is the workflow's ID.

    An empty admission: it was let in, and its outcome tells the rest.
    """

    path: str
    run: str
    admission: Admission


def said(error: RPCError, *signs: str) -> bool:
    """Is it one of these that Temporal says?"""
    return any(sign in error.message for sign in signs)


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
