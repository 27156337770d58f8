"""MCI: what the VMs of a region share, and which MCIs use it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

path_text = sa.String().with_variant(sa.String(collation="C"), "postgresql")
json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "connections",
        sa.Column("place", sa.String, primary_key=True),
        sa.Column("generation", number, nullable=False),
        sa.Column("resources", json, nullable=False),
        sa.Column("checked", json, nullable=False),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("held_until", moment),
    )
    op.create_table(
        "connection_uses",
        sa.Column("place", sa.String, primary_key=True),
        sa.Column("path", path_text, primary_key=True),
    )
    op.create_index("connection_uses_of_path", "connection_uses", ["path"])


def downgrade() -> None:
    for table in ("connection_uses", "connections"):
        op.drop_table(table)
