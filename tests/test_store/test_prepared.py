"""Prepared statements return and raise what SQLAlchemy does for the same statement, on both databases."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, StatementError

from domain.errors import StoreUnavailable
from store import prepared
from store.engine import Database
from store.history import history_line
from store.prepared import MAX_LIST, MAX_PREPARED, PreparedConnection
from store.schema import UtcDateTime, history, locks, objects
from tests.test_store.driver import FRONT_1, FRONT_2, NOON, WEB, StoreDriver

ROW: dict[str, Any] = {
    "path": "ns:default:mci:api",
    "kind": "mci",
    "parent": "ns:default",
    "placement": "",
    "spec": {"list": [1, None], "text": "é 100 %"},
    "status": "Running",
    "previous_status": "Creating",
    "target_action": "",
    "target_status": "",
    "epoch": 7,
    "created_at": NOON,
    "changed_at": NOON,
    "error": "",
    "info": {},
    "principal": {"name": "ops"},
}
LINE = history_line(WEB, NOON, "user", "suspend", "Running", "Suspending", 7)
BY_PATHS = sa.select(objects).where(objects.c.path.in_(sa.bindparam("paths", expanding=True))).order_by(objects.c.path)
INSERT = sa.insert(objects)
STATEMENTS: dict[str, tuple[Any, Any]] = {
    "values of every type": (sa.select(objects).order_by(objects.c.path), None),
    "a list": (BY_PATHS, {"paths": [WEB, FRONT_1]}),
    "an empty list": (BY_PATHS, {"paths": []}),
    "a set": (BY_PATHS, {"paths": {WEB, FRONT_1}}),
    "a list that is too long": (BY_PATHS, {"paths": [FRONT_1, *"abcdefghi"]}),
    "a list in the statement": (
        sa.select(objects.c.path, objects.c.info).where(objects.c.path.in_([WEB, FRONT_2])).order_by(objects.c.path),
        {},
    ),
    "constants and a parameter": (
        sa.select(objects.c.path).where(objects.c.kind == "vm", objects.c.path != sa.bindparam("but"), sa.true()),
        {"but": FRONT_1},
    ),
    "computed columns": (
        sa.select(
            objects.c.kind, sa.func.count().label("n"), sa.literal_column("1.5", sa.Double).label("x"), sa.func.max("%")
        )
        .group_by(objects.c.kind)
        .order_by(objects.c.kind),
        None,
    ),
    "one insert": (INSERT, ROW),
    "many inserts": (INSERT, [ROW, ROW | {"path": "other", "spec": {}, "principal": None}]),
    "an insert that returns": (INSERT.returning(objects.c.path, objects.c.spec), ROW),
    "a tuple of inserts": (INSERT, (ROW, ROW | {"path": "other"})),
    "a list of one insert": (INSERT.returning(objects.c.path), [ROW]),
    "many inserts that return": (INSERT.returning(objects.c.path), [ROW, ROW | {"path": "other"}]),
    "an insert with a generated key": (sa.insert(history), LINE),
    "an insert from a select": (
        sa.insert(locks).from_select(
            ["path", "owner", "run", "mode", "since", "action"],
            sa.select(
                objects.c.path,
                sa.literal("me"),
                sa.literal("run"),
                sa.literal("X"),
                sa.bindparam("since", type_=UtcDateTime()),
                sa.literal("stop"),
            ).where(objects.c.path.in_(sa.bindparam("paths", expanding=True))),
        ),
        {"since": NOON, "paths": [WEB]},
    ),
    "an update": (
        sa.update(objects).where(objects.c.kind == sa.bindparam("of_kind")),
        {"of_kind": "vm", "info": {"a": [1]}, "changed_at": NOON},
    ),
    "many updates": (
        sa.update(objects).where(objects.c.path == sa.bindparam("at_path")),
        [{"at_path": FRONT_1, "error": "one"}, {"at_path": FRONT_2, "error": "two"}],
    ),
    "an update of lists": (
        sa.update(objects).where(objects.c.path.in_(sa.bindparam("paths", expanding=True))),
        {"paths": [FRONT_1, FRONT_2], "error": "both"},
    ),
    "a deletion that returns": (sa.delete(objects).returning(objects.c.path, objects.c.kind), None),
}
BY_SQLALCHEMY = {"a set", "a list that is too long", "a tuple of inserts", "many inserts that return"}


def _execute(cls: type[sa.Connection], database: Database, statement: Any, parameters: Any) -> tuple[Any, ...]:
    """Returns the rows, how many changed, and all objects, locks and lines afterwards. Keeps nothing."""
    with cls(database.engine) as connection, connection.begin() as transaction:
        result = connection.execute(statement, parameters)
        rows = [dict(row) for row in result.mappings()] if len(statement.exported_columns) else []
        changed = result.rowcount if statement.is_update else None
        after = [connection.execute(sa.select(table).order_by(table.c.path)).all() for table in (objects, locks)]
        lines = connection.execute(sa.select(history.c.path, history.c.at, history.c.to, history.c.effect)).all()
        transaction.rollback()
    return rows, changed, after, lines


def _run(connection: sa.Connection, statement: Any, parameters: Any) -> None:
    connection.execute(statement, parameters)


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_prepared_statement_does_what_sqlalchemy_does(
    driver: StoreDriver, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.make()
    statement, parameters = STATEMENTS[name]
    expected = _execute(sa.Connection, driver.database, statement, parameters)
    executed: list[str] = []
    here = get_ident()  # a stack of other tests may run in other threads
    execute = prepared._PreparedStatement.execute

    def note(form: prepared._PreparedStatement, *args: Any) -> Any:
        if get_ident() == here:
            executed.append(form.sql)
        return execute(form, *args)

    monkeypatch.setattr(prepared._PreparedStatement, "execute", note)
    for _ in range(3):  # by SQLAlchemy, unless another test has executed it; then prepared; then as prepared before
        assert _execute(PreparedConnection, driver.database, statement, parameters) == expected
    assert (len(executed) >= 2) == (name not in BY_SQLALCHEMY)


async def test_lists_of_another_length_are_prepared_on_their_own(driver: StoreDriver) -> None:
    await driver.make()

    def read(connection: sa.Connection, **parameters: Any) -> list[str]:
        return [row.path for row in connection.execute(BY_PATHS, parameters)]

    for paths in ([WEB], [WEB, FRONT_1], [], [FRONT_1], [WEB, FRONT_1, FRONT_2], [WEB]) * 2:
        assert await driver.database.run_transaction(partial(read, paths=paths)) == paths


async def test_a_statement_has_no_more_prepared_forms_than_the_limit(driver: StoreDriver) -> None:
    many = sa.select(objects.c.path).where(
        *(objects.c.path.in_(sa.bindparam(f"names{n}", expanding=True)) for n in range(3))
    )

    def read(connection: sa.Connection) -> None:
        for n in range(MAX_PREPARED + 5):
            lists = {f"names{at}": ["a"] * (n // MAX_LIST**at % MAX_LIST) for at in range(3)}
            assert connection.execute(many, lists).all() == []

    await driver.database.run_transaction(read)
    assert len(prepared._STATEMENTS[many]._prepared) == MAX_PREPARED


async def test_a_statement_that_is_built_for_one_execution_is_not_kept(driver: StoreDriver) -> None:
    built: list[weakref.ref[sa.Select[tuple[str]]]] = []

    def read(connection: sa.Connection) -> None:
        statement = sa.select(objects.c.path).where(objects.c.kind == "vm")
        built.append(weakref.ref(statement))
        connection.execute(statement).all()

    for _ in range(4):
        await driver.database.run_transaction(read)
    gc.collect()
    assert [each() for each in built[1:]] == [None] * 3, "only SQLAlchemy's own cache keeps the first"


async def test_errors_are_those_of_sqlalchemy(driver: StoreDriver) -> None:
    await driver.make()

    for _ in range(3):
        with pytest.raises(IntegrityError) as caught:
            await driver.database.run_transaction(
                partial(_run, statement=INSERT, parameters=ROW | {"path": WEB, "info": {"secret": "x"}})
            )
        assert caught.value.orig
        with pytest.raises(StatementError, match="A value is required for bind parameter 'paths'"):
            await driver.database.run_transaction(partial(_run, statement=BY_PATHS, parameters={}))
    assert await driver.statuses() == {"front-1": "Running", "front-2": "Running"}


async def test_options_of_the_engine_hold_for_every_execution(tmp_path: Path) -> None:
    """The workers of real providers keep their tables in a schema of their own."""
    database = Database(f"sqlite:///{tmp_path}/main.db")
    things = sa.Table("things", sa.MetaData(), sa.Column("name", sa.String))
    insert, select = sa.insert(things), sa.select(things)

    @sa.event.listens_for(database.engine, "connect")
    def attach(connection: Any, _record: Any) -> None:
        connection.execute(f"ATTACH '{tmp_path}/other.db' AS other")

    plain, database.engine = database.engine, database.engine.execution_options(schema_translate_map={None: "other"})
    for engine in (plain, database.engine):
        things.create(engine)
    for name in "abc":
        database.run_transaction_blocking(partial(_run, statement=insert, parameters={"name": name}))
    assert database.run_transaction_blocking(lambda connection: connection.execute(select).scalars().all()) == [*"abc"]
    database.engine = plain
    for _ in range(3):
        assert database.run_transaction_blocking(lambda connection: connection.execute(select).all()) == []
    database.close()


async def test_listeners_hear_of_every_statement(driver: StoreDriver) -> None:
    heard: list[str] = []

    def read(connection: sa.Connection) -> None:
        sa.event.listen(connection, "before_cursor_execute", lambda *what: heard.append(what[2]))
        for _ in range(3):
            connection.execute(BY_PATHS, {"paths": [WEB]}).all()

    await driver.database.run_transaction(read)
    assert len(heard) == 3


async def test_a_connection_that_is_lost_is_replaced(emptied_postgres_url: str) -> None:
    database = Database(emptied_postgres_url, pool=1)
    backends = sa.select(
        sa.func.pg_backend_pid(), sa.func.pg_terminate_backend(sa.bindparam("which", type_=sa.Integer))
    )
    own = sa.select(sa.func.pg_backend_pid())

    def end_itself(connection: sa.Connection) -> None:
        connection.execute(backends, {"which": connection.execute(own).scalar_one()}).all()

    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await database.run_transaction(end_itself)
        assert await database.run_transaction(lambda connection: connection.execute(own).scalar_one())
    database.close()
