"""What reviews of the first version asked for: one migration, as it was never released in parts."""

import uuid
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

path_text = sa.String().with_variant(sa.String(collation="C"), "postgresql")
in_bin = sa.text("status IN ('DELETED', 'DELETING', 'TOBEDELETED')")
machines = sa.text("kind = 'machine'")


asked = sa.text("request_id <> ''")
under_way = sa.text("target_action <> 'None'")
unborn = sa.text("\"to\" = 'None' AND effect = 'abandoned'")
unborn_before = sa.text("\"to\" = 'None' AND (action = 'heal' OR message LIKE 'failed%' OR message LIKE 'cancelled%')")


def upgrade() -> None:
    op.add_column("connections", sa.Column("epoch", Number, nullable=False, server_default="0"))
    op.add_column("actions", sa.Column("spec_digest", sa.String, nullable=False, server_default=""))
    op.create_index("lease_allocations_of_reservation", "lease_allocations", ["reservation"])
    until, node = sa.text("(info ->> 'until')"), sa.text("(info ->> 'node')")
    op.create_index("objects_in_bin", "objects", [until, "path"], sqlite_where=in_bin, postgresql_where=in_bin)
    op.create_index("objects_on_node", "objects", [node, "status"], sqlite_where=machines, postgresql_where=machines)
    image = sa.text("(spec ->> 'image')")
    op.create_index("objects_of_image", "objects", [image], sqlite_where=machines, postgresql_where=machines)
    leaving = sa.text("(info ->> 'leaving')")
    begun = sa.text("(info ->> 'leaving') IS NOT NULL")
    op.create_index("objects_leaving", "objects", [leaving, "path"], sqlite_where=begun, postgresql_where=begun)
    op.create_table(
        "permits",
        sa.Column("cloud", sa.String, primary_key=True),
        sa.Column("region", sa.String, primary_key=True),
        sa.Column("worker", sa.String, primary_key=True),
        sa.Column("amount", sa.Integer, nullable=False),
        sa.Column("wants", sa.Integer, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )
    op.create_table(
        "unanswered",
        sa.Column("place", sa.String, primary_key=True),
        sa.Column("path", path_text, primary_key=True),
        sa.Column("generation", Number, primary_key=True, autoincrement=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
    )
    _kernel()


def _kernel() -> None:
    op.add_column("actions", sa.Column("started_at", sa.DateTime(timezone=True)))
    op.create_index("actions_of_request", "actions", ["path", "request_id"], sqlite_where=asked, postgresql_where=asked)
    op.create_index("objects_under_way", "objects", ["changed_at"], sqlite_where=under_way, postgresql_where=under_way)
    op.create_index("locks_of_run", "locks", ["run"])
    op.create_index("history_of_epoch", "history", ["epoch"])
    op.drop_index("history_unborn", "history")
    op.add_column("history", sa.Column("effect", sa.String, nullable=False, server_default="applied"))
    lines = sa.table("history", sa.column("effect"), sa.column("action"), sa.column("message"))
    op.execute(lines.update().values(effect="ignored").where(lines.c.message.startswith("ignored: ")))
    op.execute(lines.update().values(effect="abandoned").where((lines.c.action == "heal") | unborn_before))
    op.create_index("history_unborn", "history", ["path"], sqlite_where=unborn, postgresql_where=unborn)
    identity = op.create_table(
        "store_identity",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("incarnation", Number, nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "pruned",
        sa.Column("path", path_text, primary_key=True),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("came_from", sa.String, nullable=False),
        sa.Column("doing", sa.String, nullable=False),
        sa.Column("epoch", Number, nullable=False),
    )
    now = datetime.now(UTC)
    op.bulk_insert(identity, [{"id": uuid.uuid4().hex, "incarnation": 1, "since": now}])


def downgrade() -> None:
    op.drop_table("unanswered")
    op.drop_table("pruned")
    op.drop_table("permits")
    op.drop_index("objects_leaving", "objects")
    op.drop_index("objects_of_image", "objects")
    op.drop_index("objects_on_node", "objects")
    op.drop_index("objects_in_bin", "objects")
    op.drop_index("lease_allocations_of_reservation", "lease_allocations")
    op.drop_column("actions", "spec_digest")
    op.drop_table("store_identity")
    op.drop_index("history_unborn", "history")
    op.drop_column("history", "effect")
    before = unborn_before
    op.create_index("history_unborn", "history", ["path"], sqlite_where=before, postgresql_where=before)
    op.drop_index("history_of_epoch", "history")
    op.drop_index("locks_of_run", "locks")
    op.drop_index("objects_under_way", "objects")
    op.drop_index("actions_of_request", "actions")
    op.drop_column("actions", "started_at")
    op.drop_column("connections", "epoch")
