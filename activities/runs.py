"""Asks Temporal whether a run is open, also when it was reset or continued as new under another run ID."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import timedelta
from enum import Enum
from typing import TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

Item = TypeVar("Item")
T = TypeVar("T")

CONCURRENT_CALLS = 20
ANSWER_TIMEOUT = timedelta(seconds=10)  # for one call: a server that has much to do needs seconds
_CLOSED_STATUSES = (  # a running or paused run is open
    Status.WORKFLOW_EXECUTION_STATUS_COMPLETED,
    Status.WORKFLOW_EXECUTION_STATUS_FAILED,
    Status.WORKFLOW_EXECUTION_STATUS_CANCELED,
    Status.WORKFLOW_EXECUTION_STATUS_TERMINATED,
    Status.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
    Status.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
)
PAUSED = Status.WORKFLOW_EXECUTION_STATUS_PAUSED  # by Temporal's Web UI or CLI; the SDK's enum lacks it
OPEN_RUNS = "CloseTime IS NULL"  # a query that also finds paused runs, which `ExecutionStatus = 'Running'` does not
PAGE_SIZE = 1_000
_NO_SUCH_RUN_CODES = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)


class RunState(Enum):
    """State of a run, as Temporal reports it."""

    OPEN = "open"
    PAUSED = "paused"  # open, and does nothing until somebody unpauses it
    CLOSED = "closed"
    UNKNOWN = "unknown"  # not known to Temporal, or forgotten


ALIVE_STATES = (RunState.OPEN, RunState.PAUSED)


async def read_run_state(client: Client, workflow_id: str, run: str) -> RunState:
    """Returns the state of a run, or of the newest run of its chain after a reset or continue-as-new.

    Every run of a chain names the first one. Temporal forgets closed runs, so the run itself may be unknown.
    """
    asked = await _describe_execution(client, workflow_id, run)
    if asked and is_open(asked):
        return _open_state(asked)
    newest = await _describe_execution(client, workflow_id, "")
    if newest and newest.first_run_id == (asked.first_run_id if asked else run):
        return _open_state(newest) if is_open(newest) else RunState.CLOSED
    return RunState.CLOSED if asked else RunState.UNKNOWN


async def call_concurrently(call: Callable[[Item], Awaitable[T]], items: Iterable[Item]) -> list[T]:
    """Makes a call to Temporal for each item, a few at a time. Returns the answers in the order of the items."""
    room = asyncio.Semaphore(CONCURRENT_CALLS)

    async def call_within_limit(item: Item) -> T:
        async with room:
            return await call(item)

    return await asyncio.gather(*map(call_within_limit, items))


async def find_reset_run(client: Client, workflow_id: str, run: str | None) -> str:
    """Returns the run that continues a run that was reset; empty if it was not reset, or Temporal has forgotten it."""
    found = await describe_run(client, workflow_id, run or "")
    return found.workflow_extended_info.reset_run_id if found else ""


async def is_workflow_open(client: Client, workflow_id: str) -> bool:
    """Tells whether a run is open under this workflow ID."""
    newest = await _describe_execution(client, workflow_id, "")
    return newest is not None and is_open(newest)


def is_open(execution: WorkflowExecutionInfo) -> bool:
    """Tells whether a run is open: running or paused."""
    return execution.status not in _CLOSED_STATUSES


def _open_state(execution: WorkflowExecutionInfo) -> RunState:
    return RunState.PAUSED if execution.status == PAUSED else RunState.OPEN


async def list_runs(client: Client, query: str) -> AsyncIterator[WorkflowExecutionInfo]:
    """Yields Temporal's raw records of the runs that a query finds: the SDK's list fails on a paused one."""
    token = b""
    while True:
        request = ListWorkflowExecutionsRequest(
            namespace=client.namespace, query=query, page_size=PAGE_SIZE, next_page_token=token
        )
        page = await client.workflow_service.list_workflow_executions(request, retry=True)
        for execution in page.executions:
            yield execution
        if not (token := page.next_page_token):
            return


async def _describe_execution(client: Client, workflow_id: str, run: str) -> WorkflowExecutionInfo | None:
    found = await describe_run(client, workflow_id, run)
    return found.workflow_execution_info if found else None


async def describe_run(client: Client, workflow_id: str, run: str) -> DescribeWorkflowExecutionResponse | None:
    """Returns Temporal's raw description of a run: the SDK's fails on unknown statuses, such as paused."""
    which = WorkflowExecution(workflow_id=workflow_id, run_id=run)
    asked = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=which)
    try:
        return await client.workflow_service.describe_workflow_execution(asked, retry=True, timeout=ANSWER_TIMEOUT)
    except RPCError as error:
        if error.status in _NO_SUCH_RUN_CODES:
            return None
        raise
