"""The simulated hypervisor's own tables, beside those of the simulated clouds."""

from __future__ import annotations

import sqlalchemy as sa

from providers.simulated.tables import Number, PathText, metadata

things = sa.Table(
    "sim_things",
    metadata,
    sa.Column("path", PathText, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("node", sa.String, nullable=False),
    sa.Column("machine", PathText, nullable=False),
    sa.Column("image", sa.String, nullable=False),
    sa.Column("memory", sa.Integer, nullable=False),  # a machine's need, a node's capacity
    sa.Column("effects", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),  # the highest that ordered anything
    sa.Index("sim_things_on_node", "node", "kind", "state", "memory"),  # all that the room of a node is reckoned from
)

# Every order that was given, in the order in which they were answered. A token that is in it was carried out.
orders = sa.Table(
    "sim_orders",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=True),
    sa.Column("path", PathText, nullable=False),
    sa.Column("verb", sa.String, nullable=False),
    sa.Column("token", sa.String, nullable=False),
    sa.Column("effect", sa.Boolean, nullable=False),
    sa.Index("sim_orders_of_token", "token"),
    sa.Index("sim_orders_of_path", "path", "number"),
)
