"""begin, advance and finish: the only writers of an action's state. As local activities they may run twice."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import activity

from activities.measuring import timed
from domain import metrics, wire
from domain.errors import Refused
from domain.model import Admission, Claim, Ending, Holders, LineOrder, Outcome, Query, Refusal, Request, Step, Stepped
from domain.ports import Inventory


class ActionWrites:
    """What every action does to the inventory, whatever its family."""

    def __init__(self, inventory: Inventory, allowed: Callable[[Request], None] | None = None) -> None:
        self._inventory = inventory
        self._allowed = allowed

    @activity.defn(name=wire.PERMIT)
    async def permit(self, request: Request) -> Refusal | None:
        """Why whoever asks may not do this, whatever the object's status. begin looks at it too."""
        try:
            return self._allowed(request) if self._allowed else None
        except Refused as refused:
            return Refusal(category=refused.category, message=refused.message, hint=refused.hint)

    @activity.defn(name=wire.BEGIN)
    async def begin(self, claim: Claim) -> Admission:
        """Legal, and nobody in the way? A refusal is an answer, not an error."""
        with timed(metrics.STORE_LATENCY, operation="begin"):
            return await self._inventory.begin(claim)

    @activity.defn(name=wire.ADVANCE)
    async def advance(self, step: Step) -> Stepped:
        """Moves within the action: all or none."""
        with timed(metrics.STORE_LATENCY, operation="advance"):
            return await self._inventory.advance(step)

    @activity.defn(name=wire.FINISH)
    async def finish(self, ending: Ending) -> Outcome:
        """The end, and the locks released."""
        with timed(metrics.STORE_LATENCY, operation="finish"):
            return await self._inventory.finish(ending)

    @activity.defn(name=wire.HAS_ENDED)
    async def has_ended(self, query: Query) -> bool:
        """Has finish been here for this run? Its end may be kept without Temporal having heard of it."""
        try:
            await self._inventory.outcome(query.run)
        except Refused:
            return False
        return True

    @activity.defn(name=wire.STILL_HELD)
    async def still_held(self, behind: Holders) -> Holders:
        """Those of the holders that have not released their locks yet."""
        return Holders(holders=await self._inventory.still_held(behind.holders))

    @activity.defn(name=wire.CLOSE_LINE)
    async def close_line(self, order: LineOrder) -> Holders:
        """Nobody else may stand in line; those who do are returned."""
        return Holders(holders=await self._inventory.close_line(order))

    @activity.defn(name=wire.OPEN_LINE)
    async def open_line(self, order: LineOrder) -> None:
        """The line is gone."""
        await self._inventory.open_line(order)
