"""Stores how workers share each cloud's concurrency caps. Every exchange of permits locks the cloud's row first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import sqlalchemy as sa

from domain.permits import PermitLimits, PermitReply, PermitRequest, PermitShare, compute_permit_shares
from store import dbtime
from store.schema import VmPermitRow, permits
from store.transaction import SqlStore, transaction

_LOCK_CLOUD = (
    sa.select(permits.c.cloud).where(permits.c.cloud == sa.bindparam("of"), permits.c.worker == "").with_for_update()
)
_INSERT_CLOUD = sa.text(
    "INSERT INTO permits (cloud, region, worker, amount, wants, since, until) "
    "VALUES (:of, '', '', 0, 0, 0, 0) ON CONFLICT DO NOTHING"
)
_SELECT_SHARES = sa.select(*(permits.c[name] for name in VmPermitRow._fields[1:])).where(
    permits.c.cloud == sa.bindparam("of"), permits.c.worker != ""
)
_DELETE_SHARES = sa.delete(permits).where(
    permits.c.cloud == sa.bindparam("of"),
    permits.c.worker != "",
    (permits.c.worker == sa.bindparam("by")) | (permits.c.until <= sa.bindparam("now")),
)
_INSERT_SHARES = sa.insert(permits)


def exchange_permits(
    connection: sa.Connection, cloud: str, worker: str, wishes: Sequence[PermitRequest], limits: PermitLimits
) -> PermitReply:
    """Replaces a worker's shares of a cloud by new ones for its requests, and deletes expired shares of all workers."""
    if connection.execute(_LOCK_CLOUD, {"of": cloud}).first() is None:
        connection.execute(_INSERT_CLOUD, {"of": cloud})
        connection.execute(_LOCK_CLOUD, {"of": cloud})
    now = dbtime.read_database_micros(connection) / 1e6
    shares = [PermitShare(*row) for row in connection.execute(_SELECT_SHARES, {"of": cloud})]
    mine, terms = compute_permit_shares(shares, worker, wishes, limits, now)
    if any(share.worker == worker or share.until <= now for share in shares):
        connection.execute(_DELETE_SHARES, {"of": cloud, "by": worker, "now": now})
    if mine:
        connection.execute(_INSERT_SHARES, [VmPermitRow(cloud, *astuple(share))._asdict() for share in mine])
    return terms


class SqlPermitStore(SqlStore):
    """The store of concurrency permits: `domain.permits.PermitStore` on the inventory's database."""

    exchange_permits = transaction(exchange_permits)
