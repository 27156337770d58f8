"""Simulated volumes: a ledger of them. A provider of real ones has the same three methods."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sqlalchemy as sa

from domain.errors import Rejected
from domain.ports import TransactionRunner
from domain.singleorder import ABSENT, ObjectFacts, ProviderOrder
from providers.simulated.ledger import Ledger, LedgerObject, ledger_tables
from providers.simulated.provider import SimulatedProvider
from providers.simulated.singleorder import SimulatedObjectProvider

NAME = "volumes"  # in the fault script
# fmt: off
MOVES = {  # asking for what is so already succeeds
    "create": {ABSENT: "free", "free": "free"},
    "attach": {"free": "attached"},
    "detach": {"attached": "free", "free": "free"},
    "resize": {"free": "free"},
    "delete": {"free": ABSENT, ABSENT: ABSENT},
}
# fmt: on


@dataclass(frozen=True, kw_only=True)
class Volume(LedgerObject):
    """A volume in the ledger."""

    size: int = 0
    server: str = ""


LEDGER = Ledger(
    Volume,
    *ledger_tables(
        "sim_volumes",
        "sim_volume_orders",
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("server", sa.String, nullable=False),
    ),
)


def change(volume: Volume, order: ProviderOrder) -> Volume:
    """What an order makes of a volume, or why it is rejected."""
    state = MOVES[order.verb].get(volume.state)
    if state is None:
        raise Rejected(f"cannot {order.verb} {order.path}: it is {volume.state}")
    size = int(order.object_details.get("size", volume.size))
    server = str(order.object_details["server"]) if order.verb == "attach" else ""
    return replace(volume, state=state, size=size, server=server)


def facts(volume: Volume) -> ObjectFacts:
    """Returns what the provider reports of a volume."""
    return ObjectFacts(volume.path, volume.state, {"size": volume.size, "server": volume.server or None})


def simulated_volumes(database: TransactionRunner, latency: float, jitter: float) -> SimulatedObjectProvider[Volume]:
    """Simulated volumes in a database."""
    return SimulatedObjectProvider(
        SimulatedProvider(NAME, database, latency=latency, jitter=jitter), LEDGER, change, facts
    )
