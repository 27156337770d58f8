"""The simulated hypervisor's ledger, beside the tables of the simulated clouds."""

from __future__ import annotations

import sqlalchemy as sa

from providers.simulated.ledger import ledger_tables
from providers.simulated.tables import PathText

things, orders = ledger_tables(
    "sim_things",
    "sim_orders",
    sa.Column("node", sa.String, nullable=False),
    sa.Column("machine", PathText, nullable=False),
    sa.Column("image", sa.String, nullable=False),
    sa.Column("memory", sa.Integer, nullable=False),  # a machine's need, a node's capacity
    sa.Index("sim_things_on_node", "node", "kind", "state", "memory"),  # all that the room of a node is reckoned from
)
