"""Tables of the simulated clouds."""

from __future__ import annotations

import sqlalchemy as sa

from providers.tables import create_missing_tables

metadata = sa.MetaData()

# Ranges of paths must sort by bytes on every database.
PathText = sa.String().with_variant(sa.String(collation="C"), "postgresql")
Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite autoincrements INTEGER only

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

# One row per cloud, locked before the cloud changes, so that processes take turns. `version` rises with every
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
    sa.Column("left", sa.Integer),  # remaining uses; NULL: unlimited
    sqlite_autoincrement=True,  # ids rise, even after all rules were removed
)

quotas = sa.Table(
    "sim_quotas",
    metadata,
    sa.Column("csp", sa.String, primary_key=True),
    sa.Column("region", sa.String, primary_key=True),
    sa.Column("vms", sa.Integer, nullable=False),
)

# What tenants share in regions; a released one is deleted.
resources = sa.Table(
    "sim_resources",
    metadata,
    sa.Column("cloud_id", sa.String, primary_key=True),
    sa.Column("csp", sa.String, nullable=False),
    sa.Column("region", sa.String, nullable=False),
    sa.Column("tenant", sa.String, nullable=False),
    sa.Column("what", sa.String, nullable=False),
    sa.Column("token", sa.String, nullable=False),
    sa.Column("beside", sa.String, nullable=False),  # cloud id of the resource that it needs
    sa.Column("calls", sa.Integer, nullable=False),
    sa.Column("created", sa.Float, nullable=False),  # seconds since 1970
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),  # the highest epoch of its orders
)


def create_tables(connection: sa.Connection) -> None:
    """Creates missing tables."""
    create_missing_tables(connection, metadata)


def lock_cloud_row(connection: sa.Connection, csp: str) -> int:
    """Locks the cloud until the transaction ends; returns the version of the fault script."""
    query = sa.select(clouds.c.version).where(clouds.c.csp == csp).with_for_update()
    version = connection.execute(query).scalar()
    if version is None:
        new = "INSERT INTO sim_clouds (csp, version) VALUES (:csp, 0) ON CONFLICT DO NOTHING"
        connection.execute(sa.text(new), {"csp": csp})
        version = connection.execute(query).scalar_one()
    return int(version)
