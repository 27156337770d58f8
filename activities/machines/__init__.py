"""The machines family's activities: orders to the hypervisor for all of its kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.fence import Fence
from activities.machines.orders import HypervisorCalls
from activities.machines.runner import REFUSED_BY_HYPERVISOR, ObjectRunner
from activities.retry import NEARBY, ProviderRetry
from domain.errors import ProviderError, format_one_line
from domain.machines.messages import HypervisorResult, HypervisorTask, MachinesOnNode
from domain.machines.ports import Hypervisor, state_expected_in_status
from domain.machines.tables import TABLES
from domain.model import Grant, ObjectView, ReadQuery
from domain.paths import name_of
from domain.ports import Inventory

__all__ = ["MachineActivities"]


@dataclass(eq=False)
class MachineActivities:
    """Carries out actions of the machines family at the hypervisor."""

    inventory: Inventory
    hypervisor: Hypervisor
    fence: Fence
    patience: ProviderRetry = NEARBY

    @activity.defn
    async def operate_object(self, task: HypervisorTask) -> HypervisorResult:
        """Carries an action out. Fails without retry if the hypervisor refuses, or does not answer in time."""
        async with self._open_object_runner(task.grant) as runner:
            try:
                return await runner.carry_out_action(task.verbs)
            except ProviderError as error:
                raise ApplicationError(
                    format_one_line(error), type=REFUSED_BY_HYPERVISOR, non_retryable=True
                ) from error

    @activity.defn
    async def settle_object(self, task: HypervisorTask) -> HypervisorResult:
        """Restores the objects of a failed or interrupted action at the hypervisor to their earlier state."""
        async with self._open_object_runner(task.grant) as runner:
            return await runner.restore_objects()

    @activity.defn
    async def machines_on(self, query: ReadQuery) -> MachinesOnNode:
        """Returns the machines on a node, as the hypervisor reports them."""
        found = await self.hypervisor.list_machines_on(name_of(query.path))
        return MachinesOnNode(machines={facts.path: facts.state in ("running", "paused") for facts in found})

    async def inspect_object(self, view: ObjectView) -> str:
        """Returns an object's state at the hypervisor, and the expected one if they differ."""
        found = (await self.hypervisor.describe_object(view.path)).state
        if view.status not in TABLES[view.kind].stable_statuses:
            return found
        wanted = state_expected_in_status(view.kind, view.status)
        return found if found == wanted else f"{found}, not {wanted}"

    @asynccontextmanager
    async def _open_object_runner(self, grant: Grant) -> AsyncIterator[ObjectRunner]:
        async with self.fence.right_to_order(grant.path, grant.epoch) as right:
            view = await self.inventory.read_object(grant.path)
            yield ObjectRunner(
                self.inventory, HypervisorCalls(self.hypervisor, self.patience, grant, right), grant, view
            )
