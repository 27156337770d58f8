"""Tables of the simulated hypervisor's ledger."""

from __future__ import annotations

import sqlalchemy as sa

from providers.machines.snapshots import NO_SNAPSHOTS
from providers.simulated.ledger import ledger_tables
from providers.simulated.tables import PathText

things, orders = ledger_tables(
    "sim_things",
    "sim_orders",
    sa.Column("node", sa.String, nullable=False),
    sa.Column("machine", PathText, nullable=False),
    sa.Column("image", sa.String, nullable=False),
    sa.Column("address", sa.String, nullable=False, server_default=""),
    sa.Column("memory", sa.Integer, nullable=False),  # a machine's need, a node's capacity
    sa.Column("snapshots", sa.String, nullable=False, server_default=NO_SNAPSHOTS),  # of a machine
    sa.Index("sim_things_of_address", "address"),
    sa.Index("sim_things_on_node", "node", "kind", "state", "memory"),  # covers the sum of a node's memory in use
)
