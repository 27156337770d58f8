"""The schema of the first version: the kernel's tables, then those of each family."""

import uuid
from datetime import UTC, datetime
from typing import Any

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

KERNEL = (
    "objects",
    "actions",
    "locks",
    "history",
    "audit_seals",
    "pruned",
    "heal_reports",
    "permits",
    "tenant_usage",
    "tenant_rates",
    "store_identity",
    "aliases",
    "proofs",
    "done_once",
)
MCI = ("place_offers", "connections", "connection_uses", "unanswered")
LEASES = (
    "lease_hosts",
    "lease_properties",
    "lease_private_properties",
    "lease_bookings",
    "lease_allocations",
    "lease_timers",
)
SYSTEMS = ("system_numbers", "system_definitions")
SERVICES = ("host_ports",)


def upgrade() -> None:
    _objects()
    _actions()
    _history()
    _table("proofs", _key("id"), _column("run"), _column("expires_at", moment))
    _index("proofs_by_expiry", "proofs", "expires_at")
    _table("done_once", _key("key"), _column("expires_at", moment))
    _index("done_once_by_expiry", "done_once", "expires_at")
    _workers()
    _mci()
    _leases()
    _table("system_numbers", _key("system", path_text), _key("action"), _column("last", sa.BigInteger))
    _table("system_definitions", _key("record", path_text), _column("definition", json), sa.Column("former", json))
    _table("host_ports", _key("host", path_text), _key("port", sa.Integer), _column("path", path_text), _column("run"))
    _index("host_ports_of_path", "host_ports", "path")


def downgrade() -> None:
    for table in (*KERNEL, *MCI, *LEASES, *SYSTEMS, *SERVICES):
        op.drop_table(table)


def _objects() -> None:
    texts = ("status", "previous_status", "target_action", "target_status")
    _table(
        "objects",
        _key("path", path_text),
        *(_column("kind"), _column("parent", path_text), _column("placement"), *map(_column, texts)),
        *(_column("spec", json), _column("info", json), _column("error"), _column("epoch", number)),
        *(_column("created_at", moment), _column("changed_at", moment), sa.Column("principal", json)),
    )
    until, node, leaving = (sa.text(f"(info ->> '{key}')") for key in ("until", "node", "leaving"))
    _index("objects_of_parent", "objects", "parent", "kind", "placement", "path")
    _index("objects_of_kind", "objects", "kind", "path")
    _index("objects_under_way", "objects", "changed_at", where="target_action <> 'None'")
    _index("objects_in_bin", "objects", until, "path", where="status IN ('DELETED', 'DELETING', 'TOBEDELETED')")
    _index("objects_on_node", "objects", node, "status", where="kind = 'machine'")
    _index("objects_of_image", "objects", sa.text("(spec ->> 'image')"), where="kind = 'machine'")
    _index("objects_leaving", "objects", leaving, "path", where="(info ->> 'leaving') IS NOT NULL")


def _actions() -> None:
    _table(
        "actions",
        _key("epoch", number, autoincrement=True),
        *(_column("run", unique=True), _column("path", path_text), _column("action"), _column("force", sa.Boolean)),
        *(_column("requested_by"), _column("reason"), _column("request_id"), _column("spec_digest", server_default="")),
        *(_column("began_at", moment), sa.Column("ended_at", moment), _column("grant", json)),
        *(sa.Column("outcome", json), sa.Column("started_at", moment), _column("planned", number, server_default="0")),
        sa.Column("principal", json),
        sqlite_autoincrement=True,
    )
    _index("actions_of_path", "actions", "path", "epoch")
    _index("actions_of_request", "actions", "path", "request_id", where="request_id <> ''")
    _index("actions_open", "actions", "began_at", where="ended_at IS NULL")
    _index("actions_open_by_path", "actions", "path", "planned", where="ended_at IS NULL")
    _table(
        "locks",
        *(_key("path", path_text), _key("owner", path_text), _column("mode"), _column("run"), _column("action")),
        _column("since", moment),
    )
    _index("locks_of_owner", "locks", "owner")
    _index("locks_of_run", "locks", "run")


def _history() -> None:
    on_postgres = op.get_bind().dialect.name == "postgresql"
    transaction = sa.text("pg_current_xact_id()::text::bigint" if on_postgres else "0")
    _table(
        "history",
        _key("seq", number, autoincrement=True),
        *(_column("path", path_text), _column("at", moment)),
        *map(_column, ("actor", "action", "source", "to")),
        *(_column("epoch", number), _column("message"), _column("effect", server_default="applied")),
        _column("xid", sa.BigInteger, server_default=transaction),
    )
    _index("history_in_order", "history", "xid", "seq")
    _index("history_of_path", "history", "path", "seq")
    _index("history_of_epoch", "history", "epoch")
    _index("history_unborn", "history", "path", where="\"to\" = 'None' AND effect = 'abandoned'")
    _table(
        "audit_seals",
        *(_key("number", number), _column("at", moment), _column("xid", sa.BigInteger), _column("seq", number)),
        *(_column("previous"), _column("hash"), _column("lines", json)),
    )
    texts = map(_column, ("status", "came_from", "doing"))
    _table("pruned", _key("path", path_text), *texts, _column("epoch", number))


def _workers() -> None:
    _table(
        "heal_reports",
        *(_key("number", number, autoincrement=True), _column("at", moment), _column("report", json)),
        sqlite_autoincrement=True,
    )
    _table(
        "permits",
        *map(_key, ("cloud", "region", "worker")),
        *(_column("amount", sa.Integer), _column("wants", sa.Integer)),
        *(_column("since", sa.Double), _column("until", sa.Double)),
    )
    _table(
        "tenant_usage",
        *(_key("tenant", path_text), _key("shard", number), _column("objects", number), _column("vms", number)),
    )
    _table("tenant_rates", _key("tenant", path_text), _column("until", number))
    identity = _table("store_identity", _key("id"), _column("incarnation", number), _column("since", moment))
    op.bulk_insert(identity, [{"id": uuid.uuid4().hex, "incarnation": 1, "since": datetime.now(UTC)}])
    _table(
        "aliases",
        *(_key("number", number, autoincrement=True), _column("dialect"), _column("uuid")),
        *(_column("path", path_text), _column("generation", number)),
        sqlite_autoincrement=True,
    )
    _index("aliases_of_uuid", "aliases", "uuid", "dialect", where="uuid <> ''", unique=True)
    _index("aliases_of_path", "aliases", "path", "dialect")


def _mci() -> None:
    _table("place_offers", _key("place"), _column("checked", json))
    _table(
        "connections",
        *(_key("tenant"), _key("place"), _column("generation", number), _column("resources", json)),
        *(_column("holder"), sa.Column("held_until", moment), _column("epoch", number, server_default="0")),
    )
    _table("connection_uses", _key("tenant"), _key("place"), _key("path", path_text))
    _index("connection_uses_of_path", "connection_uses", "path")
    _table("unanswered", _key("place"), _key("path", path_text), _key("generation", number), _column("since", moment))


def _leases() -> None:
    _table(
        "lease_hosts",
        *(_key("host", path_text), _column("pool"), *_sizes(), _column("working", sa.Boolean)),
    )
    _index("lease_hosts_of_pool", "lease_hosts", "pool", "host")
    _table(
        "lease_properties",
        *(_key("host", path_text), _key("name"), _column("value", path_text), sa.Column("number", sa.Double)),
    )
    _table("lease_private_properties", _key("pool"), _key("name"))
    _table(
        "lease_bookings",
        *(_key("reservation", path_text), _column("lease", path_text), _column("project"), _column("pool")),
        *(_column("token"), _column("version", sa.Integer), _column("starts", moment), _column("ends", moment)),
        *(_column("units", sa.Integer), _column("whole", sa.Boolean), *_sizes(), _column("wants", json)),
        *(sa.Column("affinity", sa.Boolean), sa.Column("began_with", json), _column("closing", sa.Boolean)),
    )
    _index("lease_bookings_of_lease", "lease_bookings", "lease")
    _index("lease_bookings_of_project", "lease_bookings", "project", "ends", "starts", "units", "lease")
    _index("lease_bookings_of_pool", "lease_bookings", "pool", "ends")
    _table(
        "lease_allocations",
        *(_key("id", number, autoincrement=True), _column("host", path_text), _column("ends", moment)),
        *(_column("starts", moment), _column("reservation", path_text), _column("lease", path_text)),
        *(_column("units", sa.Integer), _column("whole", sa.Boolean), *_sizes(), _column("phase")),
    )
    _index("lease_allocations_of_host", "lease_allocations", "host", "ends", "starts")
    _index("lease_allocations_of_lease", "lease_allocations", "lease")
    _index("lease_allocations_of_reservation", "lease_allocations", "reservation")
    _table(
        "lease_timers",
        *(_key("event", path_text), _column("lease", path_text), _column("pool"), _column("name")),
        _column("due", moment),
    )
    _index("lease_timers_of_pool", "lease_timers", "pool", "due")
    _index("lease_timers_of_lease", "lease_timers", "lease")


def _sizes() -> list[sa.Column[Any]]:
    return [_column(name, sa.Integer) for name in ("vcpus", "memory_mb", "disk_gb")]


def _table(name: str, *columns: sa.Column[Any], **options: bool) -> sa.Table:
    return op.create_table(name, *columns, **options)


def _key(name: str, kind: Any = sa.String, autoincrement: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=autoincrement)


def _column(name: str, kind: Any = sa.String, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, **options)


def _index(name: str, table: str, *columns: Any, where: str = "", unique: bool = False) -> None:
    condition = sa.text(where) if where else None
    op.create_index(name, table, list(columns), unique=unique, sqlite_where=condition, postgresql_where=condition)
