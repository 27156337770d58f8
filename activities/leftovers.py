"""Removes leftovers: objects that a dead or failed action created outside without a record. Uses normal actions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError

from activities.launching import start_action
from domain import registry
from domain.errors import format_one_line
from domain.healing import HealEntry, HealFinding, Leftover, SweepOptions, action_limit_seconds
from domain.kinds import InternalProgram
from domain.model import Request
from domain.paths import kind_of
from domain.ports import Inventory
from domain.statetable import NONE

REMOVAL_SECONDS = 60.0  # for which a sweep waits for a removal, which continues without it

# A family's own search for leftovers that may be removed at a time; a dry run writes nothing.
FindLeftovers = Callable[[datetime, bool], Awaitable[list[Leftover]]]


@dataclass(eq=False)
class LeftoverCleaner:
    """Removes only what the history or a family's own search names; other objects outside are not ours.

    Nothing is removed within `order_life` seconds, as an order to create it may still be on its way.
    """

    client: Client
    inventory: Inventory
    limits: Mapping[str, float]
    searches: Sequence[FindLeftovers] = ()
    order_life: float = 0.0

    async def list_due_leftovers(self, order: SweepOptions, at: datetime) -> list[Leftover]:
        """Returns leftovers whose grace period is over: no call of the action that made them can be on its way."""

        def grace(path: str) -> float:
            usual = max(action_limit_seconds(self.limits, path, _discard_action_name(path)), self.order_life)
            return usual if order.grace is None else order.grace

        left = await self.inventory.list_leftovers()
        found = {
            leftover.path: leftover
            for leftover in left
            if (at - leftover.since).total_seconds() >= grace(leftover.path)
        }
        for some in await asyncio.gather(*(search(at, order.dry_run) for search in self.searches)):
            found |= {leftover.path: leftover for leftover in some}
        return list(found.values())

    async def remove_leftover(self, left: Leftover, dry_run: bool, room: asyncio.Semaphore) -> HealEntry:
        """Removes a leftover by a normal action, whose locks exclude all others. Returns the report entry."""
        told = {"path": left.path, "action": left.action, "since": left.since, "status": NONE, "to": NONE}
        if dry_run:
            return HealEntry(**told, finding=HealFinding.WOULD_REMOVE, message="searched at the provider, and removed")
        reason = f"{left.action} did not succeed, and may have left it at the provider"
        request = Request(
            path=left.path,
            action=_discard_action_name(left.path),
            requested_by=InternalProgram.SELF_HEALING,
            reason=reason,
            spec=left.spec,
        )
        async with room:
            finding, said = await self._run_removal(request)
        return HealEntry(**told, finding=finding, message=said, provider=said)

    async def _run_removal(self, request: Request) -> tuple[HealFinding, str]:
        try:
            ending = asyncio.ensure_future((await start_action(self.client, request)).result())
            if not (await asyncio.wait({ending}, timeout=REMOVAL_SECONDS))[0]:
                ending.cancel()
                return HealFinding.LEFT, f"{request.action} is under way"
            return HealFinding.REMOVED, ending.result().message
        except WorkflowAlreadyStartedError:
            return HealFinding.LEFT, "another action is under way there"
        except WorkflowFailureError as failure:
            cause = failure.cause
            return HealFinding.LEFT, format_one_line(cause.message if isinstance(cause, FailureError) else cause, 200)


def _discard_action_name(path: str) -> str:
    return registry.find_kind(kind_of(path)).table.orphan_removal_action
