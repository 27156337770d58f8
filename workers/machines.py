"""The machines family in a worker: activities that call the hypervisor have a queue of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from activities.healing import InspectObject
from activities.machines import MachineActivities
from activities.machines.listing import HypervisorListing
from activities.machines.nodes import NodeActivities
from activities.machines.recyclebin import RecycleBinActivities
from activities.orphans import ProviderListing
from activities.retry import NEARBY
from domain.companions import Companion, CompanionType
from domain.connections import Connections
from domain.errors import Category, Refused
from domain.machines import BIN_ROLE, EMPTY_BIN, HYPERVISOR_QUEUE, KINDS
from domain.machines.messages import RecycleBinOwner
from domain.machines.ports import STATE_AFTER_VERB, Hypervisor, MultiHostHypervisor
from domain.machines.tables import TABLES
from domain.nodecalls import node_of_queue, node_queue
from domain.wire import ACTIONS_QUEUE, LOOK_AGAIN, companion_id
from providers.machines import SimulatedHypervisor
from providers.machines.hypervisor import PROVIDER_NAME
from store.hooks import HooksByKind
from store.machines.hooks import HOOKS
from store.machines.queries import SqlRecycleBin
from workers.backends import make_backend_host, open_backend
from workers.context import WorkerContext
from workers.family import ActivitiesByQueue, Family
from workers.settings import WorkerSettings
from workflows.machines import EmptyBin, OperateObject, WorkOnNode

ROLE = "hypervisor"


class MachineFamily(Family):
    """The machines family for a worker: its kinds, workflows, activities, hooks and queues."""

    name = "machines"
    kinds = KINDS
    workflows = (OperateObject, WorkOnNode)
    companion_workflows = (EmptyBin,)
    queues = (HYPERVISOR_QUEUE,)
    pauses = NEARBY

    @classmethod
    def served_queues(cls, settings: WorkerSettings, connections: Connections) -> Sequence[str]:
        """Returns the hypervisor's queue, and those of the nodes that this host is."""
        named = connections.backends[ROLE].node_names if ROLE in connections.backends else ()
        if unknown := [node for node in settings.nodes if node not in named]:
            hint = f"it names {', '.join(named)}" if named else "it names no hypervisor; see docs/qemu.md"
            raise Refused(Category.INVALID, f"the connections file has no node {unknown[0]}", hint)
        return [*cls.queues, *map(node_queue, settings.nodes or named)]

    @classmethod
    def hooks(cls) -> HooksByKind:
        return HOOKS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        settings = context.settings
        self._real: MultiHostHypervisor | None = open_backend(
            context.connections, ROLE, make_backend_host(context, ROLE)
        )
        # Without a real one: simulated, in the same database as the simulated clouds.
        self.hypervisor: Hypervisor = self._real or SimulatedHypervisor(
            context.cloud_database, latency=settings.simulated_latency, jitter=settings.simulated_jitter
        )
        self._activities = MachineActivities(context.inventory, self.hypervisor, context.fence, self.retry)
        self._bin = SqlRecycleBin(context.database)

    def activities(self) -> ActivitiesByQueue:
        work, clock = self._activities, RecycleBinActivities(self.context.client, self._bin)
        real, served = self._real, self.served_queues(self.context.settings, self.context.connections)
        return {
            **{queue: [NodeActivities(real).serve_node_order] for queue in served if real and node_of_queue(queue)},
            HYPERVISOR_QUEUE: [work.operate_object, work.settle_object, work.machines_on],
            ACTIONS_QUEUE: [clock.list_due_bin_entries, clock.wake_bin_clock],
        }

    @asynccontextmanager
    async def run_beside_workers(self, queues: Sequence[str]) -> AsyncIterator[None]:
        """Claims the nodes that are served, before any order for one is taken."""
        if self._real:
            await self._real.claim_nodes([node for queue in queues if (node := node_of_queue(queue))])
        yield

    def inspectors(self) -> Mapping[str, InspectObject]:
        """Returns the hypervisor's inspector for every kind except accounts, which it does not know."""
        return dict.fromkeys((kind for kind in TABLES if kind != "account"), self._activities.inspect_object)

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the verbs of the simulated hypervisor."""
        verbs = dict.fromkeys(verb for moves in STATE_AFTER_VERB.values() for verb in moves)
        return {PROVIDER_NAME: (*verbs, "describe")}

    def listings(self) -> Sequence[ProviderListing]:
        """Lists what exists at the hypervisor, for the audit."""
        return [HypervisorListing(self.hypervisor, self.retry)]

    def companions(self) -> Sequence[CompanionType]:
        """Declares a clock per tenant with entries in the recycle bin."""
        return [
            CompanionType(
                EMPTY_BIN, "recycle-bin clock", self._list_clocks, LOOK_AGAIN, self._bin.list_overdue_bin_entries
            )
        ]

    async def _list_clocks(self) -> AsyncIterator[Companion]:
        for tenant in await self._bin.list_bin_tenants():
            yield Companion(companion_id(tenant, BIN_ROLE), tenant, RecycleBinOwner(tenant=tenant))
