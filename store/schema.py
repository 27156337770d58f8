"""Table definitions of the inventory. The migrations create the tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeDecorator

metadata = sa.MetaData()


def json_text(column: sa.ColumnElement[Any], key: str) -> sa.ColumnElement[str]:
    """Returns a key of a JSON column as text, in the exact form of the indexes on it."""
    return column.op("->>", return_type=sa.String())(sa.literal_column(f"'{key}'"))


PathText = sa.String()  # sorted by bytes, as in Python, by the migration's collation
Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite autoincrements INTEGER only


class Moment(TypeDecorator[datetime]):
    """A time with zone on every database; SQLite stores no zone, so all times are stored in UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)  # PostgreSQL's session zone


# Machines family: objects in the recycle bin, or on their way there.
IN_BIN = sa.text("status IN ('DELETED', 'DELETING', 'TOBEDELETED')")
# Machines family: machines by node, and by image.
MACHINES = sa.text("kind = 'machine'")
# Systems family: parts whose removal has begun; their backend may have removed them already.
LEAVING_PARTS = sa.text("(info ->> 'leaving') IS NOT NULL")
# Conditions of partial indexes. A query must repeat them word for word, or the index is not used.
OPEN = sa.text("ended_at IS NULL")
ASKED = sa.text("request_id <> ''")
UNDER_WAY = sa.text("target_action <> 'None'")

objects = sa.Table(
    "objects",
    metadata,
    sa.Column("path", PathText, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("parent", PathText, nullable=False),
    sa.Column("placement", sa.String, nullable=False, default=""),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("previous_status", sa.String, nullable=False),
    sa.Column("target_action", sa.String, nullable=False),
    sa.Column("target_status", sa.String, nullable=False),
    sa.Column("spec", Json, nullable=False),
    sa.Column("info", Json, nullable=False),
    sa.Column("error", sa.String, nullable=False),  # the error of the last action; empty if it succeeded
    sa.Column("epoch", Number, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("changed_at", Moment, nullable=False),
    sa.Index("objects_of_parent", "parent", "kind", "placement", "path"),
    sa.Index("objects_of_kind", "kind", "path"),
    sa.Index("objects_in_bin", sa.text("(info ->> 'until')"), "path", sqlite_where=IN_BIN, postgresql_where=IN_BIN),
    sa.Index(
        "objects_on_node", sa.text("(info ->> 'node')"), "status", sqlite_where=MACHINES, postgresql_where=MACHINES
    ),
    sa.Index("objects_of_image", sa.text("(spec ->> 'image')"), sqlite_where=MACHINES, postgresql_where=MACHINES),
    sa.Index(
        "objects_leaving",
        *(sa.text("(info ->> 'leaving')"), "path"),
        sqlite_where=LEAVING_PARTS,
        postgresql_where=LEAVING_PARTS,
    ),
    sa.Index("objects_under_way", "changed_at", sqlite_where=UNDER_WAY, postgresql_where=UNDER_WAY),
)

# One row per admitted action. Epochs increase over all objects (`epochs.py`).
actions = sa.Table(
    "actions",
    metadata,
    sa.Column("epoch", Number, primary_key=True, autoincrement=True),
    sa.Column("run", sa.String, nullable=False, unique=True),
    sa.Column("path", PathText, nullable=False),
    sa.Column("action", sa.String, nullable=False),
    sa.Column("force", sa.Boolean, nullable=False),
    sa.Column("requested_by", sa.String, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("request_id", sa.String, nullable=False),
    sa.Column("spec_digest", sa.String, nullable=False, server_default=""),  # a request ID is bound to one spec
    sa.Column("began_at", Moment, nullable=False),
    sa.Column("ended_at", Moment),
    sa.Column("grant", Json, nullable=False),
    sa.Column("outcome", Json),
    sa.Column("started_at", Moment),  # when its run started, by Temporal's clock
    sa.Index("actions_of_path", "path", "epoch"),
    sa.Index("actions_of_request", "path", "request_id", sqlite_where=ASKED, postgresql_where=ASKED),
    sa.Index("actions_open", "began_at", sqlite_where=OPEN, postgresql_where=OPEN),
    sqlite_autoincrement=True,  # never reuse an epoch, even after the last row was removed
)

locks = sa.Table(
    "locks",
    metadata,
    sa.Column("path", PathText, primary_key=True),
    sa.Column("owner", PathText, primary_key=True),  # the workflow ID
    sa.Column("mode", sa.String, nullable=False),
    sa.Column("run", sa.String, nullable=False),
    sa.Column("action", sa.String, nullable=False),
    sa.Column("since", Moment, nullable=False),
    sa.Index("locks_of_owner", "owner"),
    sa.Index("locks_of_run", "run"),
)

# Append-only, until retention removes the oldest lines of a path.
# Lines of objects that were never created: their action was cut off, failed or was cancelled.
UNBORN = sa.text("\"to\" = 'None' AND effect = 'abandoned'")

history = sa.Table(
    "history",
    metadata,
    sa.Column("seq", Number, primary_key=True, autoincrement=True),
    sa.Column("path", PathText, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("actor", sa.String, nullable=False),
    sa.Column("action", sa.String, nullable=False),
    sa.Column("source", sa.String, nullable=False),
    sa.Column("to", sa.String, nullable=False),
    sa.Column("epoch", Number, nullable=False),
    sa.Column("message", sa.String, nullable=False, default=""),
    sa.Column("effect", sa.String, nullable=False, server_default="applied"),  # `LineEffect`
    # The transaction that wrote the line: PostgreSQL hands out `seq` before a commit, so `seq` alone is no order to
    # follow (`events.py`). SQLite has one writer at a time: always 0 there.
    sa.Column("xid", sa.BigInteger, nullable=False, server_default=sa.FetchedValue()),
    sa.Index("history_of_path", "path", "seq"),
    sa.Index("history_of_epoch", "epoch"),
    sa.Index("history_in_order", "xid", "seq"),
    sa.Index("history_unborn", "path", sqlite_where=UNBORN, postgresql_where=UNBORN),
)

# Where the history of a path begins after retention has removed its oldest lines: the last removed action and the
# status it had reached, as `HistoryWalk` needs them.
pruned = sa.Table(
    "pruned",
    metadata,
    sa.Column("path", PathText, primary_key=True),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("came_from", sa.String, nullable=False),
    sa.Column("doing", sa.String, nullable=False),
    sa.Column("epoch", Number, nullable=False),
)

# Reports of sweeps. The oldest are deleted.
heal_reports = sa.Table(
    "heal_reports",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=True),
    sa.Column("at", Moment, nullable=False),
    sa.Column("report", Json, nullable=False),
    sqlite_autoincrement=True,
)

# How many VMs of a region a worker may have in flight, and until when by the database's clock. A row without a
# worker stands for the cloud, and is locked before its other rows change.
permits = sa.Table(
    "permits",
    metadata,
    sa.Column("cloud", sa.String, primary_key=True),
    sa.Column("region", sa.String, primary_key=True),
    sa.Column("worker", sa.String, primary_key=True),
    sa.Column("amount", sa.Integer, nullable=False),
    sa.Column("wants", sa.Integer, nullable=False),
    sa.Column("since", sa.Double, nullable=False),  # seconds since 1970, as `until`
    sa.Column("until", sa.Double, nullable=False),
)

# One row, the store's identity. A restore from a backup raises the incarnation; the id stays.
store_identity = sa.Table(
    "store_identity",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("incarnation", Number, nullable=False),
    sa.Column("since", Moment, nullable=False),
)
