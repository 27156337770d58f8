"""What a worker process has made once and gives to every family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from temporalio.client import Client

from activities.fence import Fence
from activities.permits import Permits
from domain.connections import Connections
from domain.ports import Cloud
from providers.simulated import SimulatedCloud
from store.engine import Database
from store.inventory import SqlInventory
from workers.settings import Settings


@dataclass(frozen=True)
class WorkerContext:
    """A family makes its activities and audits from this."""

    client: Client
    settings: Settings
    database: Database  # of the inventory
    cloud_database: Database  # of what is simulated: outside the inventory, as the real world is
    inventory: SqlInventory
    simulated: Mapping[str, SimulatedCloud]
    connections: Connections
    clouds: Mapping[str, Cloud]
    permits: Permits
    fence: Fence
    serving: set[str] = field(default_factory=set)  # the queues that this process polls just now
