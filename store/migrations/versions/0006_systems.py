"""Systems: the last numbers of their deploys and teardowns."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

path_text = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "system_numbers",
        sa.Column("system", path_text, primary_key=True),
        sa.Column("action", sa.String, primary_key=True),
        sa.Column("last", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("system_numbers")
