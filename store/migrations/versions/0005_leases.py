"""Leases: hosts as capacity, bookings, allocations, timers."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

path_text = sa.String().with_variant(sa.String(collation="C"), "postgresql")
json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "lease_hosts",
        sa.Column("host", path_text, primary_key=True),
        sa.Column("pool", sa.String, nullable=False),
        sa.Column("profile", sa.String, nullable=False),
        *_sizes(),
        sa.Column("working", sa.Boolean, nullable=False),
    )
    op.create_index("lease_hosts_of_pool", "lease_hosts", ["pool", "profile", "host"])
    op.create_table(
        "lease_bookings",
        sa.Column("reservation", path_text, primary_key=True),
        sa.Column("lease", path_text, nullable=False),
        sa.Column("project", sa.String, nullable=False),
        sa.Column("pool", sa.String, nullable=False),
        sa.Column("token", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("starts", moment, nullable=False),
        sa.Column("ends", moment, nullable=False),
        sa.Column("units", sa.Integer, nullable=False),
        sa.Column("whole", sa.Boolean, nullable=False),
        *_sizes(),
        sa.Column("wants", json, nullable=False),
        sa.Column("began_with", json),
        sa.Column("closing", sa.Boolean, nullable=False),
    )
    op.create_index("lease_bookings_of_lease", "lease_bookings", ["lease"])
    op.create_index("lease_bookings_of_project", "lease_bookings", ["project", "ends", "starts", "units", "lease"])
    op.create_index("lease_bookings_of_pool", "lease_bookings", ["pool", "ends"])
    op.create_table(
        "lease_allocations",
        sa.Column("id", number, primary_key=True, autoincrement=True),
        sa.Column("host", path_text, nullable=False),
        sa.Column("ends", moment, nullable=False),
        sa.Column("starts", moment, nullable=False),
        sa.Column("reservation", path_text, nullable=False),
        sa.Column("lease", path_text, nullable=False),
        sa.Column("units", sa.Integer, nullable=False),
        sa.Column("whole", sa.Boolean, nullable=False),
        *_sizes(),
        sa.Column("phase", sa.String, nullable=False),
    )
    op.create_index("lease_allocations_of_host", "lease_allocations", ["host", "ends", "starts"])
    op.create_index("lease_allocations_of_lease", "lease_allocations", ["lease"])
    op.create_table(
        "lease_timers",
        sa.Column("event", path_text, primary_key=True),
        sa.Column("lease", path_text, nullable=False),
        sa.Column("pool", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("due", moment, nullable=False),
    )
    op.create_index("lease_timers_of_pool", "lease_timers", ["pool", "due"])
    op.create_index("lease_timers_of_lease", "lease_timers", ["lease"])


def downgrade() -> None:
    for table in ("lease_timers", "lease_allocations", "lease_bookings", "lease_hosts"):
        op.drop_table(table)


def _sizes() -> list[sa.Column[int]]:
    return [sa.Column(name, sa.Integer, nullable=False) for name in ("vcpus", "memory_mb", "disk_gb")]
