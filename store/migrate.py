"""Upgrades a database to this code's schema, one process at a time."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from domain.errors import Category, Refused
from store.engine import Database

_ADVISORY_LOCK = 7_267_438  # an arbitrary key of the advisory lock


def migrate_schema(database: Database) -> tuple[str, str]:
    """Upgrades the schema in one transaction. Returns the versions before and after; refuses a newer schema."""
    return database.run_transaction_blocking(_upgrade)


def read_schema_version(database: Database) -> str:
    """Returns the database's schema version, or an empty string."""
    return database.run_transaction_blocking(_read_schema_version)


def newest_schema_version() -> str:
    """Returns this code's schema version."""
    return _script_directory().get_current_head() or ""


def known_schema_versions() -> set[str]:
    """Returns every schema version up to this code's."""
    return {script.revision for script in _script_directory().walk_revisions()}


def newer_schema_refusal(found: str) -> Refused:
    """Returns the refusal for a schema that is newer than this code."""
    return Refused(
        Category.INVALID,
        f"the store has schema {found}, which is newer than this program's {newest_schema_version()}",
        "upgrade this program, or point RATCHET_STORE_URL to another store",
    )


def _upgrade(connection: sa.Connection) -> tuple[str, str]:
    if connection.dialect.name == "postgresql":
        # A second process waits for the first migration, however long it takes.
        for patience in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {patience} = 0")
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    before = _read_schema_version(connection)
    if before and before not in known_schema_versions():
        raise newer_schema_refusal(before)
    config = _alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return before, newest_schema_version()


def _read_schema_version(connection: sa.Connection) -> str:
    return MigrationContext.configure(connection).get_current_revision() or ""


def _script_directory() -> ScriptDirectory:
    return ScriptDirectory.from_config(_alembic_config())


def _alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config
