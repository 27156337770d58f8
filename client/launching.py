"""Starts an action's workflow: its ID, memo and search attributes, and Temporal's messages about it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from temporalio.client import RPCTimeoutOrCancelledError, WithStartWorkflowOperation
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
)
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from activities.fairness import tenant_priority
from domain import registry, wire
from domain.limits import TASK_TIMEOUT
from domain.model import Admission, Request
from domain.paths import kind_of, short_path

MARK_MEMO = "asked"  # the memo's key that tells our own start from another client's

# Temporal's messages for an update without an answer: a workflow task failed just then, or keeps failing, or is
# overdue (its worker died or is overloaded), or the call was sent twice on the way.
TASK_FAILED_ERROR = "unexpected workflow task failure"
TASK_OVERDUE_ERROR = "Workflow Task in failed state"
ABORTED_ERROR = "workflow update was aborted"  # by a server that has too much to do
CLOSING_ERROR = "because workflow is closing"  # its last task is on its way: it has ended soon
DEAF_ERRORS = (TASK_FAILED_ERROR, TASK_OVERDUE_ERROR, CLOSING_ERROR, ABORTED_ERROR)
STARTED_ANYWAY_ERRORS = (
    TASK_FAILED_ERROR,
    "StartDeduped",
    TASK_OVERDUE_ERROR,
    ABORTED_ERROR,
)  # the workflow was started, its update was not answered
CLOSED_ERROR = "aborted by closing workflow"  # it failed before it could answer
UPDATE_LIMIT_ERROR = "total number of distinct updates"  # a run accepts 2,000 updates


@dataclass(frozen=True)
class Ticket:
    """The answer to a request: the run that carries it out, or the refusal. `path` is the workflow's ID.

    An empty admission: the run has ended or was admitted long ago, and its answer is kept no longer; see its outcome.
    """

    path: str
    run: str
    admission: Admission


def message_contains(error: RPCError, *signs: str) -> bool:
    """Tells whether Temporal's message contains one of these texts."""
    return any(sign in error.message for sign in signs)


def is_late_answer(error: RPCTimeoutOrCancelledError) -> bool:
    """Tells whether a server that has much to do took too long for one call, rather than that the connection broke."""
    return isinstance(error.__cause__, RPCError) and error.__cause__.status is RPCStatusCode.DEADLINE_EXCEEDED


def workflow_id(request: Request) -> str:
    """Returns the ID of the workflow that carries out a request."""
    return registry.workflow_id_of(request.path, request.action)


def build_start_operation(request: Request, mark: str) -> WithStartWorkflowOperation[object, object]:
    """Returns the start operation of the action's workflow, for an update-with-start."""
    verb = registry.verb_of(request)
    return WithStartWorkflowOperation(
        verb.workflow,
        request,
        id=workflow_id(request),
        task_queue=wire.ACTIONS_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        task_timeout=TASK_TIMEOUT,
        memo={**wire.request_memo(request), MARK_MEMO: mark},
        search_attributes=_search_attributes(request),
        priority=tenant_priority(request.path),
        static_summary=f"{request.action} {short_path(request.path)}",
        static_details=f"Requested by **{request.requested_by or 'nobody named'}**\n\n{request.reason}",
    )


def _search_attributes(request: Request) -> TypedSearchAttributes:
    rows = registry.kind_at(request.path).table.rows
    during = next((str(row.during) for row in rows if row.action == request.action and row.during), request.action)
    attributes = {
        "ObjectPath": request.path,
        "ObjectKind": kind_of(request.path),
        "Action": request.action,
        "Phase": during,
    }
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in attributes.items()]
    )


async def started_run_id(operation: WithStartWorkflowOperation[object, object]) -> str:
    """Returns the ID of the run that was started. Call it always: asyncio logs a failure that nobody retrieves."""
    try:
        return (await operation.workflow_handle()).first_execution_run_id or ""
    except (TemporalError, RPCError, asyncio.CancelledError):  # the SDK keeps a cancelled request as a CancelledError
        return ""
