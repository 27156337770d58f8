"""Activities of the recycle bin's clock: reads due entries, and wakes the clock after a delete."""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client

from activities.launching import wake_clock
from domain import machines, wire
from domain.machines.messages import DueBinEntries, DueBinEntriesQuery, RecycleBinOwner, RecycleBinStore


class RecycleBinActivities:
    """Activities of the recycle bins' clocks."""

    def __init__(self, client: Client, recycle_bin: RecycleBinStore) -> None:
        self._client = client
        self._bin = recycle_bin

    @activity.defn(name="bin_due")
    async def list_due_bin_entries(self, query: DueBinEntriesQuery) -> DueBinEntries:
        return await self._bin.list_due_bin_entries(query)

    @activity.defn(name="wake_bin")
    async def wake_bin_clock(self, of: RecycleBinOwner) -> None:
        """Wakes the clock of a tenant's recycle bin, or starts it if it does not run."""
        workflow_id = wire.companion_id(of.tenant, machines.BIN_ROLE)
        await wake_clock(self._client, machines.EMPTY_BIN, of, workflow_id, f"the recycle bin of {of.tenant}")
