"""The machines family in a worker: activities that call the hypervisor have a queue of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from activities.healing import InspectObject
from activities.machines import PATIENCE, MachineActivities
from activities.machines.bin import BinActivities
from activities.machines.listing import HypervisorListing
from activities.orphans import ProviderListing
from domain.companions import Companion, CompanionRow
from domain.machines import BIN, BIN_ROLE, KINDS, LOOK_AGAIN, QUEUE
from domain.machines.messages import Bin
from domain.machines.ports import MOVES
from domain.machines.tables import TABLES
from domain.wire import ACTIONS_QUEUE, companion
from providers.machines import SimulatedHypervisor
from providers.machines.hypervisor import NAME
from store.hooks import HooksByKind
from store.machines.hooks import HOOKS
from store.machines.queries import SqlBin
from workers.context import WorkerContext
from workers.family import ActivitiesByQueue, Family
from workflows.machines import EmptyBin, OperateObject, WorkOnNode


class MachineFamily(Family):
    """Machines, nodes, volumes, networks, images and the accounts that own them."""

    name = "machines"
    kinds = KINDS
    workflows = (OperateObject, WorkOnNode)
    lasting = (EmptyBin,)
    queues = (QUEUE,)

    @classmethod
    def hooks(cls) -> HooksByKind:
        return HOOKS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        settings = context.settings
        # Simulated, in the same database as the simulated clouds.
        self.hypervisor = SimulatedHypervisor(
            context.cloud_database, latency=settings.simulated_latency, jitter=settings.simulated_jitter
        )
        self._patience = replace(PATIENCE, call=settings.call_timeout, total=settings.patience)
        self._work = MachineActivities(context.inventory, self.hypervisor, context.fence, self._patience)
        self._bin = SqlBin(context.database)

    def activities(self) -> ActivitiesByQueue:
        work, clock = self._work, BinActivities(self.context.client, self._bin)
        return {
            QUEUE: [work.operate_object, work.settle_object, work.machines_on],
            ACTIONS_QUEUE: [clock.bin_due, clock.wake_bin],
        }

    def inspectors(self) -> Mapping[str, InspectObject]:
        """Returns the hypervisor's inspector for every kind except accounts, which it does not know."""
        return dict.fromkeys((kind for kind in TABLES if kind != "account"), self._work.inspect)

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the verbs of the simulated hypervisor."""
        verbs = dict.fromkeys(verb for moves in MOVES.values() for verb in moves)
        return {NAME: (*verbs, "describe")}

    def listings(self) -> Sequence[ProviderListing]:
        """What exists at the hypervisor."""
        return [HypervisorListing(self.hypervisor, self._patience)]

    def companions(self) -> Sequence[CompanionRow]:
        """Declares a clock per tenant with entries in the recycle bin."""
        return [CompanionRow(BIN, "recycle-bin clock", self._clocks, LOOK_AGAIN, self._bin.overdue)]

    async def _clocks(self) -> AsyncIterator[Companion]:
        for tenant in await self._bin.tenants():
            yield Companion(companion(tenant, BIN_ROLE), tenant, Bin(tenant=tenant))
