"""Open runs whose action the inventory has ended, after a restore for instance: asks them to cancel.

A run that waits for a message, for days if need be, never asks the store, and holds its workflow ID meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from activities.runs import OPEN_RUNS, PAUSED, list_runs
from domain import registry
from domain.errors import Refused
from domain.healing import HealEntry, HealFinding, OpenRun
from domain.ports import Inventory
from domain.statetable import NONE
from domain.wire import ACTIONS_QUEUE, object_path_of

RUNS_PER_QUERY = 500
END_GRACE = timedelta(minutes=1)  # a run closes a moment after its action has ended
LOST_MESSAGE = "the inventory has ended its action, but its workflow runs: asked to cancel"
PAUSED_MESSAGE = "the inventory has ended its action, but its workflow is paused in Temporal: unpause or terminate it"
_ACTION_ATTRIBUTE = SearchAttributeKey.for_keyword("Action")


class LostRunCanceller:
    """Finds open runs without an open action, and cancels them: each cleans up and ends with the stored outcome."""

    def __init__(self, client: Client, inventory: Inventory) -> None:
        self._client = client
        self._inventory = inventory

    async def cancel_lost_runs(self, at: datetime, dry_run: bool) -> list[HealEntry]:
        """Cancels each lost run, or only reports it. A paused one is reported: it would not notice."""
        return [await self._cancel_run(run, dry_run) async for run in self._iterate_lost_runs(at)]

    async def _iterate_lost_runs(self, at: datetime) -> AsyncIterator[WorkflowExecutionInfo]:
        types = ", ".join(f"'{name}'" for name in registry.workflow_types())
        query = f"{OPEN_RUNS} AND TaskQueue = '{ACTIONS_QUEUE}' AND WorkflowType IN ({types})"
        listed = [run async for run in list_runs(self._client, query)]
        for first in range(0, len(listed), RUNS_PER_QUERY):
            some = listed[first : first + RUNS_PER_QUERY]
            asked = [OpenRun(run=run.execution.run_id, started=run.start_time.ToDatetime(UTC)) for run in some]
            lost = set(await self._inventory.filter_lost_runs(asked, at - END_GRACE))
            for run in some:
                if run.execution.run_id in lost:
                    yield run

    async def _cancel_run(self, run: WorkflowExecutionInfo, dry_run: bool) -> HealEntry:
        finding, message = HealFinding.WOULD_CANCEL if dry_run else HealFinding.CANCELLED, LOST_MESSAGE
        if run.status == PAUSED:
            finding, message = HealFinding.PAUSED, PAUSED_MESSAGE
        elif not dry_run and not await self._try_cancel(run):
            finding, message = HealFinding.ENDED, "its workflow ended while the sweep looked"
        path = object_path_of(run.execution.workflow_id)
        return HealEntry(
            path=path,
            action=decode_typed_search_attributes(run.search_attributes).get(_ACTION_ATTRIBUTE) or run.type.name,
            since=run.start_time.ToDatetime(UTC),
            status=await self._read_status(path),
            finding=finding,
            run=run.execution.run_id,
            message=message,
        )

    async def _try_cancel(self, run: WorkflowExecutionInfo) -> bool:
        """Asks the run to cancel; False if it has ended. The list of open runs may be a moment old."""
        try:
            await self._client.get_workflow_handle(run.execution.workflow_id, run_id=run.execution.run_id).cancel()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    async def _read_status(self, path: str) -> str:
        try:
            return (await self._inventory.read_object(path)).status
        except Refused:  # there is none
            return NONE
