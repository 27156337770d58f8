"""What a worker needs for machines and their neighbours: workflows, and activities that order the hypervisor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from activities.healing import InspectObject
from activities.machines import PATIENCE, MachineActivities
from activities.machines.audit import HypervisorAudit
from activities.machines.bin import BinActivities
from activities.verify import Audit
from domain.companions import Companion, CompanionRow
from domain.machines import BIN, BIN_ROLE, LOOK_AGAIN, QUEUE
from domain.machines.messages import Bin
from domain.machines.ports import MOVES
from domain.machines.tables import TABLES
from domain.wire import ACTIONS_QUEUE, companion
from providers.machines import SimulatedHypervisor
from providers.machines.hypervisor import NAME
from store.machines.queries import SqlBin
from workers.context import WorkerContext
from workflows.machines import EmptyBin, OperateObject, WorkOnNode

WORKFLOWS: list[type] = [OperateObject, WorkOnNode, EmptyBin]
QUEUES = (QUEUE,)


def hypervisor(context: WorkerContext) -> SimulatedHypervisor:
    """The hypervisor: a simulated one, kept in the same database as the simulated clouds."""
    latency, jitter = context.settings.simulated_latency, context.settings.simulated_jitter
    return SimulatedHypervisor(context.cloud_database, latency=latency, jitter=jitter)


def activities(context: WorkerContext) -> dict[str, list[Callable[..., Any]]]:
    """Queue by queue."""
    work, clock = _activities(context), BinActivities(context.client, SqlBin(context.database))
    return {
        QUEUE: [work.operate_object, work.settle_object, work.machines_on],
        ACTIONS_QUEUE: [clock.bin_due, clock.wake_bin],
    }


def inspectors(context: WorkerContext) -> dict[str, InspectObject]:
    """For self-healing: what the hypervisor says of an object."""
    inspect = _activities(context).inspect
    return dict.fromkeys((kind for kind in TABLES if kind != "account"), inspect)


def faults(_parts: WorkerContext) -> dict[str, tuple[str, ...]]:
    """What the hypervisor can be told to fail in."""
    verbs = dict.fromkeys(verb for moves in MOVES.values() for verb in moves)
    return {NAME: (*verbs, "describe")}


def audits(context: WorkerContext) -> list[Audit]:
    """The inventory against the hypervisor's books."""
    return [HypervisorAudit(context.inventory, hypervisor(context)).audit]


def companions(context: WorkerContext) -> list[CompanionRow]:
    """A clock for each tenant that has something in the recycle bin."""
    recycle_bin = SqlBin(context.database)

    async def expected() -> AsyncIterator[Companion]:
        for tenant in await recycle_bin.tenants():
            yield Companion(companion(tenant, BIN_ROLE), tenant, Bin(tenant=tenant))

    return [CompanionRow(BIN, "recycle-bin clock", expected, LOOK_AGAIN, recycle_bin.overdue)]


def _activities(context: WorkerContext) -> MachineActivities:
    patience = replace(PATIENCE, call=context.settings.call_timeout, total=context.settings.patience)
    return MachineActivities(context.inventory, hypervisor(context), context.fence, patience)
