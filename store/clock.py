"""The database's clock, which all workers share. Expiries are computed by it, never by a worker's own clock."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa

from domain.model import WHEN_WRITTEN

MICROS = "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint"
MICROS_ON_SQLITE = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000"
_POSTGRES = sa.text(f"SELECT {MICROS}")
_SQLITE = sa.text(f"SELECT {MICROS_ON_SQLITE}")


def micros(connection: sa.Connection) -> int:
    """Returns the database's time in microseconds since 1970: at this statement, not at the transaction's begin."""
    return int(connection.execute(_POSTGRES if connection.dialect.name == "postgresql" else _SQLITE).scalar_one())


def written_at(connection: sa.Connection, at: datetime) -> datetime:
    """Returns the caller's time, or the database's time for WHEN_WRITTEN."""
    return now(connection) if at == WHEN_WRITTEN else at


def now(connection: sa.Connection) -> datetime:
    """Returns the database's time."""
    return datetime.fromtimestamp(micros(connection) / 1_000_000, UTC)
