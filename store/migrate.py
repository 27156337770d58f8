"""Bring a database to the schema that this code knows, one process at a time."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from domain.errors import Category, Refused
from store.engine import Database

_LOCK = 7_267_438  # any number; all our processes must use the same one


def migrate(database: Database) -> tuple[str, str]:
    """Upgrade in one transaction. Returns the versions before and after. A newer schema than ours is refused."""
    return database.run_here(_upgrade)


def version(database: Database) -> str:
    """The schema version that the database has, or nothing."""
    return database.run_here(_version)


def newest() -> str:
    """The schema version that this code knows."""
    return _scripts().get_current_head() or ""


def known_versions() -> set[str]:
    """Every schema version that this code has known."""
    return {script.revision for script in _scripts().walk_revisions()}


def newer(found: str) -> Refused:
    """What to say to a schema that this code does not know."""
    return Refused(
        Category.INVALID,
        f"the store has schema {found}, which is newer than this program's {newest()}",
        "upgrade this program, or point RATCHET_STORE_URL to another store",
    )


def _upgrade(connection: sa.Connection) -> tuple[str, str]:
    if connection.dialect.name == "postgresql":
        # Whoever comes second waits for the first, however long its migration takes; nothing here is cut off halfway.
        for patience in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {patience} = 0")
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    before = _version(connection)
    if before and before not in known_versions():
        raise newer(before)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return before, newest()


def _version(connection: sa.Connection) -> str:
    return MigrationContext.configure(connection).get_current_revision() or ""


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config
