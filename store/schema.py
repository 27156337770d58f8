"""The tables of the inventory: a table has a column for each field of its row. The migrations create them."""

from __future__ import annotations

from datetime import UTC, datetime
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator

metadata = sa.MetaData()


def json_key_as_text(column: sa.ColumnElement[Any], key: str) -> sa.ColumnElement[str]:
    """Returns a key of a JSON column as text, in the exact form of the indexes on it."""
    return column.op("->>", return_type=sa.String())(sa.literal_column(f"'{key}'"))


PathText = sa.String()  # sorted by bytes, as in Python, by the migration's collation
Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite autoincrements INTEGER only


class UtcDateTime(TypeDecorator[datetime]):
    """A time with zone on every database; SQLite stores no zone, so all times are stored in UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)  # PostgreSQL's session zone


Path = Annotated[str, PathText]
Count = Annotated[int, sa.Integer()]

_TYPES: dict[Any, Any] = {
    str: sa.String(),
    int: Number,
    float: sa.Double(),
    bool: sa.Boolean(),
    datetime: UtcDateTime(),
    dict: Json,
    list: Json,
}


def define_table(
    name: str,
    row: type,
    key: tuple[str, ...],
    *rest: SchemaItem,
    empty: tuple[str, ...] = (),
    sqlite_autoincrement: bool = False,
) -> sa.Table:
    """Makes the table of a row, with its constraints and indexes. Columns in `empty` are the empty text by default."""
    columns = []
    for field, hint in get_type_hints(row, include_extras=True).items():
        parts = [part for part in get_args(hint) if part is not NoneType] if NoneType in get_args(hint) else [hint]
        kept = get_args(parts[0])[1] if get_origin(parts[0]) is Annotated else _TYPES[get_origin(parts[0]) or parts[0]]
        usual = "" if field in empty else None
        columns.append(sa.Column(field, kept, primary_key=field in key, nullable=parts != [hint], default=usual))
    return sa.Table(name, metadata, *columns, *rest, sqlite_autoincrement=sqlite_autoincrement)


def define_index(name: str, *columns: Any, where: sa.TextClause | None = None) -> sa.Index:
    """An index, on some of the rows if there is a condition."""
    return sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


def info_key(key: str) -> sa.TextClause:
    """A key of `info`, as an index has it."""
    return sa.text(f"(info ->> '{key}')")


# Machines family: objects in the recycle bin, or on their way there.
IS_IN_BIN = sa.text("status IN ('DELETED', 'DELETING', 'TOBEDELETED')")
# Machines family: machines by node, and by image.
IS_MACHINE = sa.text("kind = 'machine'")
# Systems family: parts whose removal has begun; their backend may have removed them already.
IS_LEAVING_PART = sa.text("(info ->> 'leaving') IS NOT NULL")
# Conditions of partial indexes. A query must repeat them word for word, or the index is not used.
IS_OPEN = sa.text("ended_at IS NULL")
HAS_REQUEST_ID = sa.text("request_id <> ''")
HAS_UUID = sa.text("uuid <> ''")
IS_UNDER_WAY = sa.text("target_action <> 'None'")
# Lines that tell that an object did not come into being: its action was cut off, failed or was cancelled.
IS_NEVER_CREATED = sa.text("\"to\" = 'None' AND effect = 'abandoned'")


class ObjectRow(NamedTuple):
    """An object: what it is, and what is being done to it."""

    path: Path
    kind: str
    parent: Path
    placement: str
    status: str
    previous_status: str
    target_action: str
    target_status: str
    spec: dict[str, Any]
    info: dict[str, Any]
    error: str  # the error of the last action; empty if it succeeded
    epoch: int
    created_at: datetime
    changed_at: datetime
    principal: dict[str, Any] | None = None  # a Principal: for whom programs of ours act when they serve this object

    @property
    def principal_name(self) -> str:
        """The name of its principal; empty if it has none."""
        return str(self.principal["name"]) if self.principal else ""


objects = define_table(
    "objects",
    ObjectRow,
    ("path",),
    define_index("objects_of_parent", "parent", "kind", "placement", "path"),
    define_index("objects_of_kind", "kind", "path"),
    define_index("objects_in_bin", info_key("until"), "path", where=IS_IN_BIN),
    define_index("objects_on_node", info_key("node"), "status", where=IS_MACHINE),
    define_index("objects_of_image", sa.text("(spec ->> 'image')"), where=IS_MACHINE),
    define_index("objects_leaving", info_key("leaving"), "path", where=IS_LEAVING_PART),
    define_index("objects_under_way", "changed_at", where=IS_UNDER_WAY),
    empty=("placement",),
)


class ActionRow(NamedTuple):
    """An admitted action. Epochs increase over all objects (`epochs.py`)."""

    epoch: int
    run: str
    path: Path
    action: str
    force: bool
    requested_by: str
    reason: str
    request_id: str
    spec_digest: str  # a request ID is bound to one spec
    began_at: datetime
    ended_at: datetime | None
    grant: dict[str, Any]
    outcome: dict[str, Any] | None
    started_at: datetime | None  # when its run started, by Temporal's clock
    planned: int  # VMs that it will add and that are not on record yet
    principal: dict[str, Any] | None = None  # a Principal: whom the action is for


actions = define_table(
    "actions",
    ActionRow,
    ("epoch",),
    sa.UniqueConstraint("run"),
    define_index("actions_of_path", "path", "epoch"),
    define_index("actions_of_request", "path", "request_id", where=HAS_REQUEST_ID),
    define_index("actions_open", "began_at", where=IS_OPEN),
    define_index("actions_open_by_path", "path", "planned", where=IS_OPEN),
    empty=("spec_digest",),
    sqlite_autoincrement=True,  # never reuse an epoch, even after the last row was removed
)


class ProofRow(NamedTuple):
    """A proof that a request or message had, and the run that it was used for."""

    id: str
    run: str
    expires_at: datetime


proofs = define_table("proofs", ProofRow, ("id",), define_index("proofs_by_expiry", "expires_at"))


class DoneOnceRow(NamedTuple):
    """The key of something that is done once, however often a run asks for it (`once.py`)."""

    key: str
    expires_at: datetime


done_once = define_table("done_once", DoneOnceRow, ("key",), define_index("done_once_by_expiry", "expires_at"))


class LockRow(NamedTuple):
    """A lock that is held."""

    path: Path
    owner: Path  # the workflow ID
    mode: str
    run: str
    action: str
    since: datetime


locks = define_table(
    "locks", LockRow, ("path", "owner"), define_index("locks_of_owner", "owner"), define_index("locks_of_run", "run")
)


class HistoryRow(NamedTuple):
    """A line of the history. Lines are only added, until retention removes the oldest lines of a path."""

    seq: int
    path: Path
    at: datetime
    actor: str
    action: str
    source: str
    to: str
    epoch: int
    message: str
    effect: str  # `LineEffect`
    # The transaction that wrote the line: PostgreSQL hands out `seq` before a commit, so `seq` alone is no order to
    # follow (`events.py`). SQLite has one writer at a time: always 0 there. The database fills it in.
    xid: Annotated[int, sa.BigInteger()]


history = define_table(
    "history",
    HistoryRow,
    ("seq",),
    define_index("history_of_path", "path", "seq"),
    define_index("history_of_epoch", "epoch"),
    define_index("history_in_order", "xid", "seq"),
    define_index("history_unborn", "path", where=IS_NEVER_CREATED),
    empty=("message",),
)


class PrunedHistoryRow(NamedTuple):
    """Where the history of a path begins after retention has removed its oldest lines: the last removed action and the
    status it had reached, as `HistoryChecker` needs them."""

    path: Path
    status: str
    came_from: str
    doing: str
    epoch: int


pruned = define_table("pruned", PrunedHistoryRow, ("path",))


class SealRow(NamedTuple):
    """A link of the hash chain over the history (`seals.py`), up to the line `xid`, `seq`. Rows are only added."""

    number: int
    at: datetime
    xid: Annotated[int, sa.BigInteger()]
    seq: int
    previous: str  # the hash of the seal before it
    hash: str
    lines: list[Any]  # `SealedLine` of each, in their order


seals = define_table("audit_seals", SealRow, ("number",))


class HealReportRow(NamedTuple):
    """The report of a sweep. The oldest are deleted."""

    number: int
    at: datetime
    report: dict[str, Any]


heal_reports = define_table("heal_reports", HealReportRow, ("number",), sqlite_autoincrement=True)


class VmPermitRow(NamedTuple):
    """How many VMs of a region a worker may have in flight, and until when by the database's clock. A row without a
    worker stands for the cloud, and is locked before its other rows change."""

    cloud: str
    region: str
    worker: str
    amount: Count
    wants: Count
    since: float  # seconds since 1970, as `until`
    until: float


permits = define_table("permits", VmPermitRow, ("cloud", "region", "worker"))


class UsageRow(NamedTuple):
    """How many objects and VMs a tenant has on record: the sum of its shards, of which one alone may be negative."""

    tenant: Path
    shard: int
    objects: int
    vms: int


tenant_usage = define_table("tenant_usage", UsageRow, ("tenant", "shard"))


class RateRow(NamedTuple):
    """Until when a tenant's minute is taken by its requests, in microseconds since 1970."""

    tenant: Path
    until: int


tenant_rates = define_table("tenant_rates", RateRow, ("tenant",))


class StoreIdentityRow(NamedTuple):
    """One row, the store's identity. A restore from a backup raises the incarnation; the id stays."""

    id: str
    incarnation: int
    since: datetime


store_identity = define_table("store_identity", StoreIdentityRow, ("id",))


class AliasRow(NamedTuple):
    """An id of an object in a dialect of the gateway: the UUID, or the number where the dialect has numbers."""

    number: int
    dialect: str
    uuid: str
    path: Path
    generation: int


aliases = define_table(
    "aliases",
    AliasRow,
    ("number",),
    sa.Index("aliases_of_uuid", "uuid", "dialect", unique=True, sqlite_where=HAS_UUID, postgresql_where=HAS_UUID),
    define_index("aliases_of_path", "path", "dialect"),
    sqlite_autoincrement=True,  # a number is never given twice
)
