"""The simulated cloud's own tables."""

from __future__ import annotations

import sqlalchemy as sa

from providers.tables import create_missing

metadata = sa.MetaData()

# Ranges of paths must sort by bytes on every database.
PathText = sa.String().with_variant(sa.String(collation="C"), "postgresql")
Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up by itself only for INTEGER

vms = sa.Table(
    "sim_vms",
    metadata,
    sa.Column("cloud_id", sa.String, primary_key=True),
    sa.Column("csp", sa.String, nullable=False),
    sa.Column("region", sa.String, nullable=False),
    sa.Column("path", PathText, nullable=False),
    sa.Column("token", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("address", sa.String, nullable=False),
    sa.Column("last_token", sa.String, nullable=False),
    sa.Column("calls", sa.Integer, nullable=False),
    sa.Column("effects", sa.Integer, nullable=False),
    sa.Column("created", sa.Float, nullable=False),  # seconds since 1970
    sa.Column("changed", sa.Float, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),  # the highest that ordered anything
    sa.Index("sim_vms_of_place", "csp", "region", "path"),
    sqlite_with_rowid=False,  # one tree instead of two: a third faster
)

# One row per cloud. Whoever changes the cloud locks it first, so two processes take turns; `version` rises with every
# change of the fault script, so that a cloud without faults never reads the script.
clouds = sa.Table(
    "sim_clouds",
    metadata,
    sa.Column("csp", sa.String, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
)

faults = sa.Table(
    "sim_faults",
    metadata,
    sa.Column("id", Number, primary_key=True, autoincrement=True),
    sa.Column("csp", sa.String, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("left", sa.Integer),  # how many more times; NULL: for ever
    sqlite_autoincrement=True,  # a later rule has a higher number, even after all were removed
)

quotas = sa.Table(
    "sim_quotas",
    metadata,
    sa.Column("csp", sa.String, primary_key=True),
    sa.Column("region", sa.String, primary_key=True),
    sa.Column("vms", sa.Integer, nullable=False),
)

# What the VMs of a region share. What is released is gone.
resources = sa.Table(
    "sim_resources",
    metadata,
    sa.Column("cloud_id", sa.String, primary_key=True),
    sa.Column("csp", sa.String, nullable=False),
    sa.Column("region", sa.String, nullable=False),
    sa.Column("what", sa.String, nullable=False),
    sa.Column("token", sa.String, nullable=False),
    sa.Column("beside", sa.String, nullable=False),  # the cloud id of the one before it
    sa.Column("calls", sa.Integer, nullable=False),
    sa.Column("created", sa.Float, nullable=False),  # seconds since 1970
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),  # the highest hold that ordered it
)


def create_tables(connection: sa.Connection) -> None:
    """Make the tables that are missing."""
    create_missing(connection, metadata)


def lock_cloud(connection: sa.Connection, csp: str) -> int:
    """Wait for our turn to change this cloud; returns the version of the fault script."""
    query = sa.select(clouds.c.version).where(clouds.c.csp == csp).with_for_update()
    version = connection.execute(query).scalar()
    if version is None:
        new = "INSERT INTO sim_clouds (csp, version) VALUES (:csp, 0) ON CONFLICT DO NOTHING"
        connection.execute(sa.text(new), {"csp": csp})
        version = connection.execute(query).scalar_one()
    return int(version)
