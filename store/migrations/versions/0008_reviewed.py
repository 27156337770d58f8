"""What reviews of the first version asked for: one migration, as it was never released in parts."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("connections", sa.Column("epoch", Number, nullable=False, server_default="0"))
    op.add_column("actions", sa.Column("spec_digest", sa.String, nullable=False, server_default=""))
    op.create_index("lease_allocations_of_reservation", "lease_allocations", ["reservation"])


def downgrade() -> None:
    op.drop_index("lease_allocations_of_reservation", "lease_allocations")
    op.drop_column("actions", "spec_digest")
    op.drop_column("connections", "epoch")
