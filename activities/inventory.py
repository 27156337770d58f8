"""begin, advance and finish: the only writers of an action's state. As local activities they may run twice."""

from __future__ import annotations

from temporalio import activity

from domain import wire
from domain.model import Admission, Claim, Ending, Outcome, Step, Stepped
from domain.ports import Inventory


class ActionWrites:
    """What every action does to the inventory, whatever its family."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    @activity.defn(name=wire.BEGIN)
    async def begin(self, claim: Claim) -> Admission:
        """Legal, and nobody in the way? A refusal is an answer, not an error."""
        return await self._inventory.begin(claim)

    @activity.defn(name=wire.ADVANCE)
    async def advance(self, step: Step) -> Stepped:
        """Moves within the action: all or none."""
        return await self._inventory.advance(step)

    @activity.defn(name=wire.FINISH)
    async def finish(self, ending: Ending) -> Outcome:
        """The end, and the locks released."""
        return await self._inventory.finish(ending)
