"""Timeouts of tests: long enough for a busy machine, reached only by failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from client.actions import ActionClient, Ticket
from client.errors import NoWorker, Unanswered
from domain.model import Outcome, Request

PATIENCE = 180  # seconds

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
