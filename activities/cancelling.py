"""Cancels an action for somebody who may: Temporal's own cancel carries no name."""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.reads import refusals_as_errors
from domain.errors import Category, Refused
from domain.exposure import CANCEL
from domain.ports import Inventory
from domain.requests import AccessAttempt, CancelOrder


class CancelActivities:
    """Cancels actions, and records who asked for it. The guard has judged the sender before."""

    def __init__(self, client: Client, inventory: Inventory) -> None:
        self._client = client
        self._inventory = inventory

    @activity.defn
    @refusals_as_errors
    async def cancel_action(self, order: CancelOrder) -> CancelOrder:
        """Requests the cancellation of the open action on an object. Refused if none is open."""
        handle = self._client.get_workflow_handle(order.workflow_id, run_id=order.run or None)
        try:
            await handle.cancel()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise Refused(
                Category.NOT_ALLOWED, f"no action runs on {order.path}", "there is nothing to cancel"
            ) from error
        message = f"cancel asked for by {order.requested_by or 'nobody named'}"
        await self._inventory.record_access_attempt(AccessAttempt(path=order.path, verb=CANCEL, message=message))
        return order
