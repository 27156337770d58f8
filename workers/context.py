"""Objects that a worker process creates once and passes to every family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from temporalio.client import Client

from activities.access import Authorizer
from activities.fence import Fence
from activities.permits import PermitPool
from domain.connections import Connections
from domain.ports import Cloud
from providers.simulated import SimulatedCloud
from store.engine import Database
from store.inventory import SqlInventory
from workers.settings import WorkerSettings


@dataclass(frozen=True)
class WorkerContext:
    """What a family creates its activities and audits from."""

    client: Client
    settings: WorkerSettings
    database: Database  # of the inventory
    cloud_database: Database  # of simulated providers, apart from the inventory
    inventory: SqlInventory
    authorizer: Authorizer
    simulated: Mapping[str, SimulatedCloud]
    connections: Connections
    clouds: Mapping[str, Cloud]
    permits: PermitPool
    fence: Fence
    serving: set[str] = field(default_factory=set)  # the queues that this process polls now
