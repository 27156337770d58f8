"""Self-healing: reports that are kept, and the open actions found without reading all of them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0002"
branch_labels = None
depends_on = None

json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
is_open = sa.text("ended_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "heal_reports",
        sa.Column("number", number, primary_key=True, autoincrement=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("report", json, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("actions_open", "actions", ["began_at"], sqlite_where=is_open, postgresql_where=is_open)


def downgrade() -> None:
    op.drop_index("actions_open", "actions")
    op.drop_table("heal_reports")
