"""Locks whose owner is gone: ask Temporal whether the owner's run is open, and put right what a dead one left."""

from __future__ import annotations

from datetime import UTC, datetime

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.measuring import count
from domain import metrics, wire
from domain.model import Holder, Holders
from domain.ports import Inventory


class Healing:
    def __init__(self, client: Client, inventory: Inventory) -> None:
        self._client = client
        self._inventory = inventory

    @activity.defn(name=wire.HEAL_HOLDERS)
    async def heal_holders(self, suspects: Holders) -> int:
        """Bury those of the holders whose run is closed. Returns how many those were."""
        dead = [holder for holder in suspects.holders if not await self._alive(holder)]
        for holder in dead:
            at = datetime.now(UTC)
            await self._inventory.bury(
                holder.owner, holder.run, at, "the action was cut off; back to what it was, the cloud was not asked"
            )
        count(metrics.HEALS, len(dead), result="buried")
        count(metrics.HEALS, len(suspects.holders) - len(dead), result="alive")
        return len(dead)

    async def _alive(self, holder: Holder) -> bool:
        try:
            described = await self._client.get_workflow_handle(holder.owner, run_id=holder.run).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return described.status is WorkflowExecutionStatus.RUNNING
