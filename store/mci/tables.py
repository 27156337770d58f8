"""Tables of our own: connections, which MCIs use them, and orders for VMs that nobody answered."""

from __future__ import annotations

import sqlalchemy as sa

from store.schema import Json, Moment, Number, PathText, metadata

# One line per cloud and region that was ever used. `resources` says what the VMs there share: an empty id is something
# that was ordered and perhaps made. `holder` prepares or releases it now; if it dies, its hold ends by itself.
connections = sa.Table(
    "connections",
    metadata,
    sa.Column("place", sa.String, primary_key=True),
    sa.Column("generation", Number, nullable=False),
    sa.Column("resources", Json, nullable=False),
    sa.Column("checked", Json, nullable=False),  # specs and images that the cloud was seen to offer, and when
    sa.Column("holder", sa.String, nullable=False),
    sa.Column("held_until", Moment),  # by the database's clock
    sa.Column("epoch", Number, nullable=False, server_default="0"),  # of the last hold: it rises with every holder
)

uses = sa.Table(
    "connection_uses",
    metadata,
    sa.Column("place", sa.String, primary_key=True),
    sa.Column("path", PathText, primary_key=True),
    sa.Index("connection_uses_of_path", "path"),
)

# VMs whose records went while no cloud had answered for them: the order to make them may be carried out yet. The token
# of that order follows from path and generation.
unanswered = sa.Table(
    "unanswered",
    metadata,
    sa.Column("place", sa.String, primary_key=True),
    sa.Column("path", PathText, primary_key=True),
    sa.Column("generation", Number, primary_key=True, autoincrement=False),
    sa.Column("since", Moment, nullable=False),  # when the record went
)
