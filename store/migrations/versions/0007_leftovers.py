"""Which objects did not come into being, to be found without reading all of the history."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

unborn = sa.text("\"to\" = 'None' AND (action = 'heal' OR message LIKE 'failed%' OR message LIKE 'cancelled%')")


def upgrade() -> None:
    op.create_index("history_unborn", "history", ["path"], sqlite_where=unborn, postgresql_where=unborn)


def downgrade() -> None:
    op.drop_index("history_unborn", "history")
