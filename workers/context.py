"""What a worker process has made once and every family may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """What families are given to make their activities, audits and hooks of."""

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
    own: dict[str, Any] = field(default_factory=dict)  # what a family has made for itself, by its name
