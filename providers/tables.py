"""Creates the tables of simulated providers; several processes may do so at once."""

from __future__ import annotations

import sqlalchemy as sa

_ADVISORY_LOCK = 0x51AC_10D5  # an arbitrary key of the advisory lock


def create_missing_tables(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Creates missing tables. Several processes may do this at once."""
    if connection.dialect.name == "postgresql":  # its CREATE IF NOT EXISTS fails when two run at the same moment
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    metadata.create_all(connection)


def at_or_below_condition(path: sa.ColumnElement[str], prefix: str) -> sa.ColumnElement[bool]:
    """Condition for paths at or below `prefix`, or all. A range, as LIKE has wildcards and ignores case on SQLite."""
    if not prefix:
        return sa.true()
    return (path == prefix) | ((path > f"{prefix}:") & (path < f"{prefix};"))  # ';' follows ':'
