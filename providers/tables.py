"""Tables of what stands for the world outside: made by whoever comes first, and many may come at once."""

from __future__ import annotations

import sqlalchemy as sa

_LOCK = 0x51AC_10D5  # any number that nobody else locks


def create_missing(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Make the tables that are missing. Several processes may do this at once."""
    if connection.dialect.name == "postgresql":  # its CREATE IF NOT EXISTS fails when two run at the same moment
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    metadata.create_all(connection)


def below(path: sa.ColumnElement[str], prefix: str) -> sa.ColumnElement[bool]:
    """Paths at or below `prefix`; all, if it is empty. A range: LIKE has wildcards, and SQLite's ignores case."""
    if not prefix:
        return sa.true()
    return (path == prefix) | ((path > f"{prefix}:") & (path < f"{prefix};"))  # ';' follows ':'
