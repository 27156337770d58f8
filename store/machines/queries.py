"""Queries of the recycle bin: entries that are due, and the time of the next one.

The bin has no table: an object in it has its entry number and its time in `info`, which an index covers.
"""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from domain.machines import rules
from domain.machines.messages import BinEntry, BinList, BinQuery
from domain.machines.tables import IN_BIN
from store.schema import IN_BIN as IN_INDEX
from store.schema import json_text, objects
from store.transaction import Store, transaction

PAGE = 500  # entries read at once, besides those put off

_UNTIL = json_text(objects.c.info, "until")
_AT = sa.bindparam("at", type_=sa.String)
# Not as a path range: SQLite would then read all objects of the tenant instead of those that are due.
_WITHIN = sa.bindparam("within", type_=sa.String)
_OF_TENANT = (IN_INDEX, sa.func.substr(objects.c.path + ":", 1, sa.func.length(_WITHIN)) == _WITHIN)
_DUE = (
    sa.select(objects.c.path, objects.c.status, objects.c.info)
    .where(*_OF_TENANT, _UNTIL <= _AT)
    .order_by(_UNTIL, objects.c.path)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_NEXT = sa.select(_UNTIL).where(*_OF_TENANT, _UNTIL > _AT).order_by(_UNTIL).limit(1)
_OVER = (
    sa.select(objects.c.path, _UNTIL)
    .where(IN_INDEX, _UNTIL <= _AT, objects.c.status.in_(IN_BIN))
    .order_by(_UNTIL, objects.c.path)
)
# In the order of the index: in path order, SQLite would read objects outside the bin, too.
_ALL = sa.select(objects.c.path).where(IN_INDEX, _UNTIL.is_not(None)).order_by(_UNTIL, objects.c.path)


def due(connection: sa.Connection, query: BinQuery) -> BinList:
    """Returns entries whose retention is over, the oldest first. What lies inside a listed entry goes with it."""
    which = {"within": f"{query.tenant}:", "at": rules.stamp(query.at)}
    rows = connection.execute(_DUE, which | {"most": PAGE + len(query.later)}).all()
    going, found, waiting = list(query.busy), list[BinEntry](), False
    for path, status, info in rows:
        if path in query.later or any(path == each or path.startswith(f"{each}:") for each in going):
            continue
        if status not in IN_BIN or "bin" not in info:
            waiting = True  # on its way into the bin
        elif len(found) < query.limit:
            going.append(path)
            found.append(BinEntry(path=path, number=info["bin"]))
    first = connection.execute(_NEXT, which).scalar_one_or_none()
    return BinList(due=found, waiting=waiting, next=datetime.fromisoformat(first) if first else None)


def overdue(connection: sa.Connection, prefix: str, before: datetime) -> dict[str, str]:
    """Returns entries at or below a path whose retention was over before a time."""
    rows = connection.execute(_OVER, {"at": rules.stamp(before)})
    return {path: until for path, until in rows if not prefix or path == prefix or path.startswith(f"{prefix}:")}


def tenants(connection: sa.Connection) -> list[str]:
    """Returns tenants with entries in the bin, or on their way there."""
    return sorted({rules.tenant_of(path) for path in connection.execute(_ALL).scalars()})


class SqlBin(Store):
    """The recycle bin's store: `domain.machines.messages.RecycleBin` on SQLite or PostgreSQL."""

    due = transaction(due)
    overdue = transaction(overdue)
    tenants = transaction(tenants)
