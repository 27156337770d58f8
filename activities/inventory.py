"""begin, advance and finish: the only writers of an action's state. As local activities they may run twice."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from temporalio import activity

from activities.measuring import timed
from domain import metrics
from domain.errors import Refused
from domain.model import (
    Admission,
    Claim,
    Done,
    Ending,
    Grant,
    Holders,
    Outcome,
    Query,
    QueueCommand,
    Refusal,
    Request,
    Result,
    Step,
    Stepped,
)
from domain.paths import kind_of
from domain.ports import InlineWork, Inventory
from domain.statetable import Ruling

_log = logging.getLogger("ratchet.actions")


class ActionWrites:
    """What every action does to the inventory, whatever its family.

    `at_once`, by kind and action: work that mostly takes no time. It is tried as soon as the action is let in; if that
    brings it to an end, the end is written there and then, and the workflow is spared its other steps.
    """

    def __init__(
        self,
        inventory: Inventory,
        allowed: Callable[[Request], None] | None = None,
        at_once: Mapping[tuple[str, str], InlineWork] | None = None,
        serves: list[str] | None = None,
    ) -> None:
        self._inventory = inventory
        self._allowed = allowed
        self._at_once = at_once or {}
        self._serves = serves  # the real places that this worker reaches

    @activity.defn
    async def permit(self, request: Request) -> Refusal | None:
        """Why whoever asks may not do this, whatever the object's status. begin looks at it too."""
        try:
            return self._allowed(request) if self._allowed else None
        except Refused as refused:
            return Refusal.of(refused)

    @activity.defn
    async def begin(self, claim: Claim) -> Admission:
        """Legal, and nobody in the way? A refusal is an answer, not an error."""
        began = time.monotonic()
        with timed(metrics.STORE_LATENCY, operation="begin"):
            admission = await self._inventory.begin(claim.model_copy(update={"serves": self._serves}))
        if admission.grant is None or admission.outcome:
            return admission
        done = await self._work(admission.grant)
        if isinstance(done, Grant):
            return admission.model_copy(update={"grant": done})
        at = claim.at + timedelta(seconds=time.monotonic() - began)  # by the server's clock, not by ours
        result = Result.FAILED if done.failed else Result.SUCCEEDED
        outcome = await self.finish(Ending.of(admission.grant, result, done, at))
        return admission.model_copy(update={"outcome": outcome})

    async def _work(self, grant: Grant) -> Done | Grant:
        """What the action leaves, if its work can be done at once; else what the workflow goes on from."""
        work = self._at_once.get((kind_of(grant.path), grant.action))
        if work is None or grant.ruling is not Ruling.GO or grant.behind:
            return grant
        try:
            return await work(grant)
        except Exception:  # whatever it is: the workflow meets it too, and has more patience
            _log.warning("%s of %s cannot be done at once", grant.action, grant.path, exc_info=True)
            return grant

    @activity.defn
    async def advance(self, step: Step) -> Stepped:
        """Moves within the action: all or none."""
        with timed(metrics.STORE_LATENCY, operation="advance"):
            return await self._inventory.advance(step)

    @activity.defn
    async def finish(self, ending: Ending) -> Outcome:
        """The end, and the locks released."""
        with timed(metrics.STORE_LATENCY, operation="finish"):
            return await self._inventory.finish(ending)

    @activity.defn
    async def has_ended(self, query: Query) -> bool:
        """Has finish been here for this run? Its end may be kept without Temporal having heard of it."""
        try:
            await self._inventory.outcome(query.run)
        except Refused:
            return False
        return True

    @activity.defn
    async def still_held(self, behind: Holders) -> Holders:
        """Those of the holders that have not released their locks yet."""
        return Holders(holders=await self._inventory.still_held(behind.holders))

    @activity.defn(name="close_line")
    async def close_queue(self, order: QueueCommand) -> Holders:
        """Nobody else may stand in line; those who do are returned."""
        return Holders(holders=await self._inventory.close_queue(order))

    @activity.defn(name="open_line")
    async def open_queue(self, order: QueueCommand) -> None:
        """The line is gone."""
        await self._inventory.open_queue(order)
