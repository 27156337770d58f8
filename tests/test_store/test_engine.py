"""Errors of the databases: which are retried at once, which later, and which need an operator."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Barrier, Event

import pytest
import sqlalchemy as sa

from domain.errors import Category, Refused, StoreUnavailable
from store import engine
from store.engine import Database
from store.migrate import _ADVISORY_LOCK, migrate_schema, newest_schema_version
from tests.patience import PATIENCE


@pytest.fixture
def url(empty_postgres: Callable[[], str]) -> str:
    return empty_postgres()


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.close()


def statement(text: str) -> Callable[[sa.Connection], object]:
    return lambda connection: connection.execute(sa.text(text)).rowcount


def test_of_two_transactions_in_a_deadlock_both_are_done_in_the_end(database: Database) -> None:
    database.run_transaction_blocking(statement("CREATE TABLE things (id INTEGER PRIMARY KEY, n INTEGER)"))
    database.run_transaction_blocking(statement("INSERT INTO things VALUES (1, 0), (2, 0)"))
    gate, tries = Barrier(2), []

    def crossing(order: tuple[int, int]) -> Callable[[sa.Connection], None]:
        def work(connection: sa.Connection) -> None:
            tries.append(order)
            add = sa.text("UPDATE things SET n = n + 1 WHERE id = :id")
            connection.execute(add, {"id": order[0]})
            if len(tries) <= 2:  # both hold one and want the other
                gate.wait(PATIENCE)
            connection.execute(add, {"id": order[1]})

        return work

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda order: database.run_transaction_blocking(crossing(order)), [(1, 2), (2, 1)]))
    total = database.run_transaction_blocking(
        lambda connection: connection.execute(sa.text("SELECT sum(n) FROM things")).scalar()
    )
    assert total == 4
    assert len(tries) >= 3, "one was chosen to give way, and came again; it may even come too soon, and cross once more"


def test_a_transaction_that_lost_a_race_is_rolled_back_and_tried_again_a_few_times(database: Database) -> None:
    database.run_transaction_blocking(statement("CREATE TABLE things (id INTEGER)"))
    tries: list[int] = []

    def losing(times: int) -> Callable[[sa.Connection], int]:
        def work(connection: sa.Connection) -> int:
            tries.append(times)
            connection.execute(sa.text("INSERT INTO things VALUES (1)"))
            if len(tries) <= times:
                raise engine.LostRace("somebody else was faster")
            return int(connection.execute(sa.text("SELECT count(*) FROM things")).scalar_one())

        return work

    assert database.run_transaction_blocking(losing(2)) == 1
    assert len(tries) == 3
    tries.clear()
    with pytest.raises(StoreUnavailable, match="somebody else was faster"):
        database.run_transaction_blocking(losing(engine.MAX_TRIES))
    assert len(tries) == engine.MAX_TRIES


def test_a_standby_is_unavailable_rather_than_broken(database: Database) -> None:
    def write(connection: sa.Connection) -> None:
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        connection.exec_driver_sql("CREATE TABLE things (id INTEGER)")

    with pytest.raises(StoreUnavailable, match="read-only transaction"):
        database.run_transaction_blocking(write)


def test_missing_rights_are_told_with_what_to_grant(database: Database, url: str) -> None:
    name = sa.make_url(url).database
    for text in (
        f"CREATE ROLE {name}_reader LOGIN",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"GRANT CONNECT ON DATABASE {name} TO {name}_reader",
    ):
        database.run_transaction_blocking(statement(text))
    reader = Database(str(sa.make_url(url).set(username=f"{name}_reader")))
    with pytest.raises(Refused, match="permission denied for schema public") as caught:
        migrate_schema(reader)
    reader.close()
    assert caught.value.category is Category.INVALID
    assert "the right to create and change tables" in caught.value.hint


def test_whoever_migrates_second_waits_longer_than_an_action_would(
    url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = 10_000
    for millis in (100, 1_000, last):  # the first statements of a connection may take longer on a busy machine
        options = f"-c lock_timeout=50 -c statement_timeout={millis}"
        monkeypatch.setitem(engine._CONNECT_OPTIONS, "options", options)
        second = Database(url)
        try:
            assert _migrate_behind_another(database, second, 3 * millis) == ("", newest_schema_version())
            return
        except StoreUnavailable:
            if millis == last:
                raise
        finally:
            second.close()


def _migrate_behind_another(database: Database, second: Database, millis: int) -> tuple[str, str]:
    """Migrates by the second while the first holds the lock, for so long."""
    held, waited = Event(), Event()

    def first(connection: sa.Connection) -> None:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        held.set()
        waited.wait(PATIENCE)

    def until_it_waits(connection: sa.Connection) -> bool:
        waiting = sa.text(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted "
            f"AND a.datname = current_database() AND clock_timestamp() - a.query_start > interval '{millis} ms'"
        )
        return bool(connection.execute(waiting).scalar())

    with ThreadPoolExecutor(2) as threads:
        holding = threads.submit(database.run_transaction_blocking, first)
        assert held.wait(PATIENCE)
        migrating = threads.submit(migrate_schema, second)
        while not database.run_transaction_blocking(until_it_waits) and not migrating.done():
            pass
        waited.set()
        holding.result()
        return migrating.result()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("hunter2", "the store's URL cannot be read"),
        ("postgresql://me:hunter2@host:port/name", "the store's URL cannot be read"),
        ("mysql://me:hunter2@host/name", "the store cannot be kept in 'mysql'"),
        ("", "the store's URL cannot be read"),
    ],
)
def test_a_url_that_is_none_is_refused_without_being_shown(url: str, words: str) -> None:
    with pytest.raises(Refused) as caught:
        Database(url)
    assert caught.value.message == words
    assert "postgresql://user:password@host/name" in caught.value.hint
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


def test_a_pool_is_as_large_as_it_is_told(url: str) -> None:
    small = Database(url, pool=2)
    gate = Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        pids = list(
            threads.map(
                lambda _: small.run_transaction_blocking(lambda connection: _backend(connection, gate)), range(2)
            )
        )
    assert len(set(pids)) == 2
    assert small.engine.pool.status().startswith("Pool size: 2 ")
    small.close()


def _backend(connection: sa.Connection, gate: Barrier) -> int:
    gate.wait(PATIENCE)
    return int(connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())


def test_a_new_file_that_another_process_writes_to_is_waited_for(tmp_path: Path) -> None:
    """SQLite does not wait by itself when the file is switched to WAL: two workers may start on an empty home."""
    file = tmp_path / "store.db"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE theirs (x)")
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as threads:
        database = Database(f"sqlite:///{file}")
        asked = threads.submit(
            database.run_transaction_blocking, lambda connection: connection.exec_driver_sql("SELECT 1").scalar()
        )
        assert not wait([asked], timeout=0.3).done
        other.execute("COMMIT")
        assert asked.result(timeout=PATIENCE) == 1
        database.close()
    other.close()
