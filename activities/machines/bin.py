"""Activities of the recycle bin's clock: reads due entries, and wakes the clock after a delete."""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client

from domain import machines, wire
from domain.limits import TASK_TIMEOUT
from domain.machines.messages import Bin, BinList, BinQuery, RecycleBin


class BinActivities:
    """Activities of the recycle bins' clocks."""

    def __init__(self, client: Client, recycle_bin: RecycleBin) -> None:
        self._client = client
        self._bin = recycle_bin

    @activity.defn
    async def bin_due(self, query: BinQuery) -> BinList:
        return await self._bin.due(query)

    @activity.defn
    async def wake_bin(self, of: Bin) -> None:
        """Wakes the clock of a tenant's recycle bin, or starts it if it does not run."""
        await self._client.start_workflow(
            machines.BIN,
            of,
            id=wire.companion(of.tenant, machines.BIN_ROLE),
            task_queue=wire.ACTIONS_QUEUE,
            task_timeout=TASK_TIMEOUT,
            start_signal=machines.LOOK_AGAIN,
            static_summary=f"the recycle bin of {of.tenant}",
        )
