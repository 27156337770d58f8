"""What a worker needs for machines and their neighbours: workflows, and activities that order the hypervisor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from activities.healing import Inspect
from activities.machines import PATIENCE, MachineActivities
from activities.machines.bin import BinActivities
from activities.machines.books import HypervisorBooks
from activities.verifying import Audit
from domain.companions import Companion, CompanionRow
from domain.machines import BIN, BIN_ROLE, LOOK_AGAIN, QUEUE
from domain.machines.model import Bin
from domain.machines.port import MOVES
from domain.machines.tables import TABLES
from domain.wire import ACTIONS_QUEUE, companion
from providers.machines import SimulatedHypervisor
from providers.machines.hypervisor import NAME
from store.bins import SqlBin
from workers.parts import Parts
from workflows.machines import EmptyBin, OperateObject, WorkOnNode

WORKFLOWS: list[type] = [OperateObject, WorkOnNode, EmptyBin]
QUEUES = (QUEUE,)


def hypervisor(parts: Parts) -> SimulatedHypervisor:
    """The hypervisor: a simulated one, kept in the same database as the simulated clouds."""
    latency, jitter = parts.settings.simulated_latency, parts.settings.simulated_jitter
    return SimulatedHypervisor(parts.cloud_database, latency=latency, jitter=jitter)


def activities(parts: Parts) -> dict[str, list[Callable[..., Any]]]:
    """Queue by queue."""
    work, clock = _activities(parts), BinActivities(parts.client, SqlBin(parts.database))
    return {
        QUEUE: [work.operate_object, work.settle_object, work.machines_on],
        ACTIONS_QUEUE: [clock.bin_due, clock.wake_bin],
    }


def inspectors(parts: Parts) -> dict[str, Inspect]:
    """For self-healing: what the hypervisor says of an object."""
    inspect = _activities(parts).inspect
    return dict.fromkeys((kind for kind in TABLES if kind != "account"), inspect)


def faults(_parts: Parts) -> dict[str, tuple[str, ...]]:
    """What the hypervisor can be told to fail in."""
    verbs = dict.fromkeys(verb for moves in MOVES.values() for verb in moves)
    return {NAME: (*verbs, "describe")}


def audits(parts: Parts) -> list[Audit]:
    """The inventory against the hypervisor's books."""
    return [HypervisorBooks(parts.inventory, hypervisor(parts)).audit]


def companions(parts: Parts) -> list[CompanionRow]:
    """A clock for each tenant that has something in the recycle bin."""
    recycle_bin = SqlBin(parts.database)

    async def expected() -> AsyncIterator[Companion]:
        for tenant in await recycle_bin.tenants():
            yield Companion(companion(tenant, BIN_ROLE), tenant, Bin(tenant=tenant))

    return [CompanionRow(BIN, "recycle-bin clock", expected, LOOK_AGAIN, recycle_bin.overdue)]


def _activities(parts: Parts) -> MachineActivities:
    patience = replace(PATIENCE, call=parts.settings.call_timeout, total=parts.settings.patience)
    return MachineActivities(parts.inventory, hypervisor(parts), parts.fence, patience)
