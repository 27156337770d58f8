"""The machines family in a worker: activities that call the hypervisor have a queue of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from activities.healing import InspectObject
from activities.machines import MachineActivities
from activities.machines.listing import HypervisorListing
from activities.machines.recyclebin import RecycleBinActivities
from activities.orphans import ProviderListing
from activities.retry import NEARBY
from domain.companions import Companion, CompanionType
from domain.machines import BIN_ROLE, EMPTY_BIN, HYPERVISOR_QUEUE, KINDS, LOOK_AGAIN_SIGNAL
from domain.machines.messages import TenantRecycleBin
from domain.machines.ports import STATE_AFTER_VERB, Hypervisor
from domain.machines.tables import TABLES
from domain.wire import ACTIONS_QUEUE, companion_id
from providers.machines import SimulatedHypervisor
from providers.machines.hypervisor import PROVIDER_NAME
from store.hooks import HooksByKind
from store.machines.hooks import HOOKS
from store.machines.queries import SqlRecycleBin
from workers.connections import open_backend
from workers.context import WorkerContext
from workers.family import ActivitiesByQueue, Family
from workflows.machines import EmptyBin, OperateObject, WorkOnNode


class MachineFamily(Family):
    """The machines family for a worker: its kinds, workflows, activities, hooks and queues."""

    name = "machines"
    kinds = KINDS
    workflows = (OperateObject, WorkOnNode)
    companion_workflows = (EmptyBin,)
    queues = (HYPERVISOR_QUEUE,)
    pauses = NEARBY

    @classmethod
    def hooks(cls) -> HooksByKind:
        return HOOKS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        settings = context.settings
        # Without a real one: simulated, in the same database as the simulated clouds.
        self.hypervisor: Hypervisor = open_backend(context.connections, "hypervisor") or SimulatedHypervisor(
            context.cloud_database, latency=settings.simulated_latency, jitter=settings.simulated_jitter
        )
        self._activities = MachineActivities(context.inventory, self.hypervisor, context.fence, self.retry)
        self._bin = SqlRecycleBin(context.database)

    def activities(self) -> ActivitiesByQueue:
        work, clock = self._activities, RecycleBinActivities(self.context.client, self._bin)
        return {
            HYPERVISOR_QUEUE: [work.operate_object, work.settle_object, work.machines_on],
            ACTIONS_QUEUE: [clock.list_due_bin_entries, clock.wake_bin_clock],
        }

    def inspectors(self) -> Mapping[str, InspectObject]:
        """Returns the hypervisor's inspector for every kind except accounts, which it does not know."""
        return dict.fromkeys((kind for kind in TABLES if kind != "account"), self._activities.inspect_object)

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the verbs of the simulated hypervisor."""
        verbs = dict.fromkeys(verb for moves in STATE_AFTER_VERB.values() for verb in moves)
        return {PROVIDER_NAME: (*verbs, "describe")}

    def listings(self) -> Sequence[ProviderListing]:
        """What exists at the hypervisor."""
        return [HypervisorListing(self.hypervisor, self.retry)]

    def companions(self) -> Sequence[CompanionType]:
        """Declares a clock per tenant with entries in the recycle bin."""
        return [
            CompanionType(
                EMPTY_BIN, "recycle-bin clock", self._list_clocks, LOOK_AGAIN_SIGNAL, self._bin.list_overdue_bin_entries
            )
        ]

    async def _list_clocks(self) -> AsyncIterator[Companion]:
        for tenant in await self._bin.list_bin_tenants():
            yield Companion(companion_id(tenant, BIN_ROLE), tenant, TenantRecycleBin(tenant=tenant))
