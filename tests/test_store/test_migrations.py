"""Migrations lead from nothing to the schema of the code, also when several workers start at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from domain.errors import Category, Refused
from store import engine
from store import migrate as migrations
from store.engine import Database
from store.migrate import migrate_schema, newest_schema_version, read_schema_version
from store.schema import PathText, metadata
from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = set(metadata.tables)  # the families' too: the inventory imports them


# SQLAlchemy cannot read such indexes back from SQLite; from PostgreSQL it can, and they are compared there.
pytestmark = pytest.mark.filterwarnings("ignore:.*expression-based index")


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/down/ratchet.db"
    make: Callable[[], str] = request.getfixturevalue("empty_postgres")
    return make()


@pytest.fixture
def database(empty_url: str) -> Iterator[Database]:
    database = Database(empty_url)
    yield database
    database.close()


def tables(database: Database) -> set[str]:
    return set(database.run_transaction_blocking(lambda connection: sa.inspect(connection).get_table_names()))


def test_an_empty_database_comes_to_the_newest_schema_and_stays_there(database: Database) -> None:
    assert read_schema_version(database) == ""
    assert migrate_schema(database) == ("", newest_schema_version())
    assert tables(database) == TABLES | {"alembic_version"}
    assert read_schema_version(database) == newest_schema_version() != ""
    assert migrate_schema(database) == (newest_schema_version(), newest_schema_version())


def test_the_migrated_schema_is_the_one_that_the_code_names(database: Database) -> None:
    migrate_schema(database)

    def differences(connection: sa.Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    assert database.run_transaction_blocking(differences) == []


def test_a_difference_would_be_found(database: Database) -> None:
    migrate_schema(database)

    def differences(connection: sa.Connection) -> list[object]:
        connection.exec_driver_sql("ALTER TABLE objects ADD COLUMN colour VARCHAR")
        connection.exec_driver_sql("DROP INDEX locks_of_owner")
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    assert len(database.run_transaction_blocking(differences)) == 2


@pytest.mark.parametrize("empty_url", ["postgres"], indirect=True)
def test_paths_are_sorted_by_bytes_on_postgresql(database: Database) -> None:
    migrate_schema(database)
    query = sa.text(
        "SELECT table_name || '.' || column_name FROM information_schema.columns "
        "WHERE table_schema = 'public' AND collation_name = 'C'"
    )
    found = set(database.run_transaction_blocking(lambda connection: connection.execute(query).scalars().all()))
    columns = (column for table in metadata.tables.values() for column in table.columns)
    assert found == {f"{column.table.name}.{column.name}" for column in columns if column.type is PathText}


def test_the_numbers_of_actions_are_never_used_twice(database: Database) -> None:
    """Not even that of the last line, removed: an epoch fences."""
    migrate_schema(database)
    told = {
        **dict.fromkeys(("path", "action", "requested_by", "reason", "request_id"), ""),
        "force": False,
        "began_at": sa.func.current_timestamp(),
        "grant": {},
    }
    actions = metadata.tables["actions"]

    def add(connection: sa.Connection) -> int:
        new = sa.insert(actions).values(told | {"run": "r"}).returning(actions.c.epoch)
        epoch = connection.execute(new).scalar_one()
        connection.execute(sa.delete(actions))
        return int(epoch)

    assert [database.run_transaction_blocking(add) for _ in range(3)] == [1, 2, 3]


def test_a_newer_schema_is_refused_clearly_and_left_alone(database: Database) -> None:
    migrate_schema(database)
    database.run_transaction_blocking(
        lambda connection: connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    )
    with pytest.raises(Refused) as caught:
        migrate_schema(database)
    assert caught.value.category is Category.INVALID
    assert (
        caught.value.message
        == f"the store has schema 9999, which is newer than this program's {newest_schema_version()}"
    )
    assert "upgrade this program" in caught.value.hint
    assert read_schema_version(database) == "9999"


def test_a_migration_that_fails_leaves_nothing_behind(database: Database) -> None:
    database.run_transaction_blocking(
        lambda connection: connection.execute(sa.text("CREATE TABLE history (mine VARCHAR)"))
    )
    with pytest.raises(Exception, match="already exists"):
        migrate_schema(database)
    assert tables(database) == {"history"}
    database.run_transaction_blocking(lambda connection: connection.execute(sa.text("DROP TABLE history")))
    assert migrate_schema(database) == ("", newest_schema_version())


def test_eight_threads_migrating_at_once_are_safe(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_SECONDS", PATIENCE)  # seven wait for the one that was first
    gate = Barrier(8)

    def one(_number: int) -> tuple[str, str]:
        database = Database(empty_url)
        try:
            gate.wait()
            return migrate_schema(database)
        finally:
            database.close()

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(one, range(8)))
    assert sorted(answers) == [("", newest_schema_version())] + [(newest_schema_version(), newest_schema_version())] * 7


def test_two_processes_migrating_at_once_are_safe(empty_url: str, database: Database) -> None:
    program = "import sys; from store import engine; from store.migrate import migrate_schema;"
    program += f"engine.BUSY_TIMEOUT_SECONDS = engine._CONNECT_OPTIONS['connect_timeout'] = {PATIENCE};"
    program += "d = engine.Database(sys.argv[1]);"  # one waits for the other
    program += "print('ready', flush=True); sys.stdin.readline(); print(*migrate_schema(d)); d.close()"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty_url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=PATIENCE)[0].split() for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sorted(answers) == [[newest_schema_version()], [newest_schema_version(), newest_schema_version()]]
    assert read_schema_version(database) == newest_schema_version()


def test_a_migration_can_be_taken_back(database: Database) -> None:
    migrate_schema(database)

    def downgrade(connection: sa.Connection) -> None:
        config = migrations._alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")

    database.run_transaction_blocking(downgrade)
    assert tables(database) == {"alembic_version"}
    assert read_schema_version(database) == ""
    assert migrate_schema(database) == ("", newest_schema_version())
