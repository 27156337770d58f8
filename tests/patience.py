"""Timeouts of tests: long enough for a busy machine, reached only by failures."""

from __future__ import annotations

import asyncio

from client.actions import ActionClient, Ticket
from client.errors import Unanswered
from domain.model import Outcome, Request

PATIENCE = 180  # seconds


async def answered(client: ActionClient, request: Request) -> Ticket:
    """The answer, even if a worker dies meanwhile: with its own ID, a repeated request is the same request."""
    assert request.request_id
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await client.request_action(request)
            except Unanswered:
                continue


async def ended(client: ActionClient, ticket: Ticket) -> Outcome:
    """The outcome of what was asked for; the answer has it if everything was over by then."""
    return ticket.admission.outcome or await client.wait_for_outcome(ticket.path, ticket.run)
