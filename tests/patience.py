"""Timeouts of tests: long enough for a busy machine, reached only by failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle
from temporalio.service import RetryConfig, RPCError, RPCStatusCode

from client.actions import ActionClient, Ticket
from client.errors import NoWorker, Unanswered
from domain.model import Outcome, Progress, Request
from domain.wire import PROGRESS_QUERY

PATIENCE = 180  # seconds
DEADLOCK = "[TMPRL1101]"  # the SDK's: a workflow task took longer than two seconds; it is tried again
# Of a client whose server is away for a while: by itself it gives up after ten seconds.
PATIENT = RetryConfig(max_elapsed_time_millis=PATIENCE * 1000, max_retries=1000)
ASK_AGAIN = (RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.DEADLINE_EXCEEDED)

T = TypeVar("T")


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Gives what is awaited in the block this long; else the failure says what it was."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AssertionError(f"waited {seconds:g} s, but {what}") from error


def eventually(read: Callable[[], T], is_there: Callable[[T], object] = bool) -> T:
    """What is read once it is there, or what was read last.

    On PostgreSQL lines are shown when all older transactions have ended, those of other databases of the cluster too.
    """
    deadline = time.monotonic() + PATIENCE
    while not is_there(found := read()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def is_late_task(event: HistoryEvent) -> bool:
    """Whether a workflow task took longer than the SDK or Temporal allow, as on a busy machine."""
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
        return True
    return DEADLOCK in event.workflow_task_failed_event_attributes.failure.message


async def settled(count: Callable[[], Awaitable[T]]) -> T:
    """What is counted when it has not changed for a second: Temporal's lists tell of what has happened a bit later."""
    async with asyncio.timeout(PATIENCE):
        found, since = await count(), time.monotonic()
        while time.monotonic() < since + 1:
            await asyncio.sleep(0.1)
            if (now := await count()) != found:
                found, since = now, time.monotonic()
    return found


async def answered(client: ActionClient, request: Request) -> Ticket:
    """The answer, even if a worker or the server dies meanwhile: with its own ID, a repeated request is the same."""
    assert request.request_id
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await client.request_action(request)
            except (NoWorker, Unanswered):
                continue


async def ended(client: ActionClient, ticket: Ticket) -> Outcome:
    """The outcome of what was asked for; the answer has it if everything was over by then."""
    return ticket.admission.outcome or await client.wait_for_outcome(ticket.path, ticket.run)


async def answer_of(handle: WorkflowHandle[Any, Any], query: str, answer: type[T]) -> T:
    """A query's answer. The server refuses it while a task of the workflow runs; the SDK gives up in the end."""
    async with within(PATIENCE, f"{handle.id} answered no query {query!r}"):
        while True:
            try:
                found: T = await handle.query(query, result_type=answer)
                return found
            except RPCError as error:
                if error.status not in ASK_AGAIN:
                    raise


async def progress_of(client: ActionClient, path: str, run: str | None = None) -> Progress:
    """How far an action is."""
    return await answer_of(client.client.get_workflow_handle(path, run_id=run), PROGRESS_QUERY, Progress)
