"""Queries of the recycle bin: entries that are due, and the time of the next one.

The bin has no table: an object in it has its entry number and its time in `info`, which an index covers.
"""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from domain.machines import rules
from domain.machines.messages import BinEntry, DueBinEntries, DueBinEntriesQuery
from domain.machines.tables import BIN_STATUSES
from domain.paths import is_at_or_below
from store.schema import IS_IN_BIN as IN_INDEX
from store.schema import json_key_as_text, objects
from store.transaction import SqlStore, transaction

PAGE_SIZE = 500  # entries read at once, besides those put off

_BIN_STAY_END = json_key_as_text(objects.c.info, "until")
_AT_PARAMETER = sa.bindparam("at", type_=sa.String)
# Not as a path range: SQLite would then read all objects of the tenant instead of those that are due.
_TENANT_PARAMETER = sa.bindparam("within", type_=sa.String)
_IS_IN_BIN_OF_TENANT = (
    IN_INDEX,
    sa.func.substr(objects.c.path + ":", 1, sa.func.length(_TENANT_PARAMETER)) == _TENANT_PARAMETER,
)
_SELECT_DUE = (
    sa.select(objects.c.path, objects.c.status, objects.c.info)
    .where(*_IS_IN_BIN_OF_TENANT, _BIN_STAY_END <= _AT_PARAMETER)
    .order_by(_BIN_STAY_END, objects.c.path)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_SELECT_NEXT_DUE = (
    sa.select(_BIN_STAY_END)
    .where(*_IS_IN_BIN_OF_TENANT, _BIN_STAY_END > _AT_PARAMETER)
    .order_by(_BIN_STAY_END)
    .limit(1)
)
_SELECT_OVERDUE = (
    sa.select(objects.c.path, _BIN_STAY_END)
    .where(IN_INDEX, _BIN_STAY_END <= _AT_PARAMETER, objects.c.status.in_(BIN_STATUSES))
    .order_by(_BIN_STAY_END, objects.c.path)
)
# In the order of the index: in path order, SQLite would read objects outside the bin, too.
_SELECT_ALL_ENTRIES = (
    sa.select(objects.c.path).where(IN_INDEX, _BIN_STAY_END.is_not(None)).order_by(_BIN_STAY_END, objects.c.path)
)


def list_due_bin_entries(connection: sa.Connection, query: DueBinEntriesQuery) -> DueBinEntries:
    """Returns entries whose retention is over, the oldest first. What lies inside a listed entry goes with it."""
    which = {"within": f"{query.tenant}:", "at": rules.format_sortable_time(query.at)}
    rows = connection.execute(_SELECT_DUE, which | {"most": PAGE_SIZE + len(query.later)}).all()
    going, found, waiting = list(query.busy), list[BinEntry](), False
    for path, status, info in rows:
        if path in query.later or any(is_at_or_below(path, each) for each in going):
            continue
        if status not in BIN_STATUSES or "bin" not in info:
            waiting = True  # on its way into the bin
        elif len(found) < query.limit:
            going.append(path)
            found.append(BinEntry(path=path, number=info["bin"]))
    first = connection.execute(_SELECT_NEXT_DUE, which).scalar_one_or_none()
    return DueBinEntries(due=found, waiting=waiting, next=datetime.fromisoformat(first) if first else None)


def list_overdue_bin_entries(connection: sa.Connection, prefix: str, before: datetime) -> dict[str, str]:
    """Returns entries at or below a path whose retention was over before a time."""
    rows = connection.execute(_SELECT_OVERDUE, {"at": rules.format_sortable_time(before)})
    return {path: until for path, until in rows if not prefix or is_at_or_below(path, prefix)}


def list_bin_tenants(connection: sa.Connection) -> list[str]:
    """Returns tenants with entries in the bin, or on their way there."""
    return sorted({rules.bin_tenant_of(path) for path in connection.execute(_SELECT_ALL_ENTRIES).scalars()})


class SqlRecycleBin(SqlStore):
    """The recycle bin's store: `domain.machines.messages.RecycleBinStore` on SQLite or PostgreSQL."""

    list_due_bin_entries = transaction(list_due_bin_entries)
    list_overdue_bin_entries = transaction(list_overdue_bin_entries)
    list_bin_tenants = transaction(list_bin_tenants)
