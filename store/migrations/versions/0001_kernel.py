"""The kernel: objects, actions, locks, history."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

path_text = sa.String().with_variant(sa.String(collation="C"), "postgresql")
json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "objects",
        sa.Column("path", path_text, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("parent", path_text, nullable=False),
        sa.Column("placement", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("previous_status", sa.String, nullable=False),
        sa.Column("target_action", sa.String, nullable=False),
        sa.Column("target_status", sa.String, nullable=False),
        sa.Column("spec", json, nullable=False),
        sa.Column("info", json, nullable=False),
        sa.Column("error", sa.String, nullable=False),
        sa.Column("epoch", number, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("changed_at", moment, nullable=False),
    )
    op.create_index("objects_of_parent", "objects", ["parent", "kind", "placement", "path"])
    op.create_index("objects_of_kind", "objects", ["kind", "path"])
    op.create_table(
        "actions",
        sa.Column("epoch", number, primary_key=True, autoincrement=True),
        sa.Column("run", sa.String, nullable=False, unique=True),
        sa.Column("path", path_text, nullable=False),
        sa.Column("action", sa.String, nullable=False),
        sa.Column("force", sa.Boolean, nullable=False),
        sa.Column("requested_by", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("request_id", sa.String, nullable=False),
        sa.Column("began_at", moment, nullable=False),
        sa.Column("ended_at", moment),
        sa.Column("grant", json, nullable=False),
        sa.Column("outcome", json),
        sqlite_autoincrement=True,
    )
    op.create_index("actions_of_path", "actions", ["path", "epoch"])
    op.create_table(
        "locks",
        sa.Column("path", path_text, primary_key=True),
        sa.Column("owner", path_text, primary_key=True),
        sa.Column("mode", sa.String, nullable=False),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("action", sa.String, nullable=False),
        sa.Column("since", moment, nullable=False),
    )
    op.create_index("locks_of_owner", "locks", ["owner"])
    op.create_table(
        "history",
        sa.Column("seq", number, primary_key=True, autoincrement=True),
        sa.Column("path", path_text, nullable=False),
        sa.Column("at", moment, nullable=False),
        sa.Column("actor", sa.String, nullable=False),
        sa.Column("action", sa.String, nullable=False),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("to", sa.String, nullable=False),
        sa.Column("epoch", number, nullable=False),
        sa.Column("message", sa.String, nullable=False),
    )
    op.create_index("history_of_path", "history", ["path", "seq"])


def downgrade() -> None:
    for table in ("history", "locks", "actions", "objects"):
        op.drop_table(table)
