"""The database's clock, which all workers share. Expiries are computed by it, never by a worker's own clock."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa

from domain.model import AT_WRITE_TIME

MICROS_SQL = "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint"
MICROS_SQL_ON_SQLITE = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000"
_SELECT_ON_POSTGRES = sa.text(f"SELECT {MICROS_SQL}")
_SELECT_ON_SQLITE = sa.text(f"SELECT {MICROS_SQL_ON_SQLITE}")


def read_database_micros(connection: sa.Connection) -> int:
    """Returns the database's time in microseconds since 1970: at this statement, not at the transaction's begin."""
    return int(
        connection.execute(
            _SELECT_ON_POSTGRES if connection.dialect.name == "postgresql" else _SELECT_ON_SQLITE
        ).scalar_one()
    )


def resolve_write_time(connection: sa.Connection, at: datetime) -> datetime:
    """Returns the caller's time, or the database's time for AT_WRITE_TIME."""
    return read_database_time(connection) if at == AT_WRITE_TIME else at


def read_database_time(connection: sa.Connection) -> datetime:
    """Returns the database's time."""
    return datetime.fromtimestamp(read_database_micros(connection) / 1_000_000, UTC)
