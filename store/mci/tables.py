"""The MCI family's tables: connections, the MCIs that use them, and unanswered orders for VMs."""

from __future__ import annotations

import sqlalchemy as sa

from store.schema import Json, Moment, Number, PathText, metadata

# One row per region that was ever used. `resources` are what its VMs share; an empty id was ordered and perhaps
# created. `holder` prepares or releases them now; its hold expires by itself.
connections = sa.Table(
    "connections",
    metadata,
    sa.Column("place", sa.String, primary_key=True),
    sa.Column("generation", Number, nullable=False),
    sa.Column("resources", Json, nullable=False),
    sa.Column("checked", Json, nullable=False),  # verified specs and images, with the time
    sa.Column("holder", sa.String, nullable=False),
    sa.Column("held_until", Moment),  # by the database's clock
    sa.Column("epoch", Number, nullable=False, server_default="0"),  # of the last hold; raised by every new one
)

uses = sa.Table(
    "connection_uses",
    metadata,
    sa.Column("place", sa.String, primary_key=True),
    sa.Column("path", PathText, primary_key=True),
    sa.Index("connection_uses_of_path", "path"),
)

# VMs whose records were deleted before a cloud answered: the order may still be carried out. Its token follows from
# path and generation.
unanswered = sa.Table(
    "unanswered",
    metadata,
    sa.Column("place", sa.String, primary_key=True),
    sa.Column("path", PathText, primary_key=True),
    sa.Column("generation", Number, primary_key=True, autoincrement=False),
    sa.Column("since", Moment, nullable=False),  # when the record was deleted
)
