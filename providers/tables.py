"""Tables of what stands for the world outside: made by whoever comes first, and many may come at once."""

from __future__ import annotations

import sqlalchemy as sa

_LOCK = 0x51AC_10D5  # any number that nobody else locks


def create_missing(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Make the tables and columns that are missing. Several processes may do this at once."""
    if connection.dialect.name == "postgresql":  # its CREATE IF NOT EXISTS fails when two run at the same moment
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    metadata.create_all(connection)
    there = sa.inspect(connection)
    for table in metadata.sorted_tables:
        known = {column["name"] for column in there.get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:  # of an older version: whatever comes later has a default
                told = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {told}")


def below(path: sa.ColumnElement[str], prefix: str) -> sa.ColumnElement[bool]:
    """Paths at or below `prefix`; all, if it is empty. A range: LIKE has wildcards, and SQLite's ignores case."""
    if not prefix:
        return sa.true()
    return (path == prefix) | ((path > f"{prefix}:") & (path < f"{prefix};"))  # ';' follows ':'
