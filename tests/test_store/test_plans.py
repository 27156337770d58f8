"""Every kernel statement of an action, a read or a sweep uses an index, on both databases, without ANALYZE.

The statements are those that the functions really send; the tables are large enough that a scan would be chosen if
there were no better way.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from domain.errors import Refused
from domain.healing import Suspect
from domain.invariants import Reached
from domain.model import Done, Ending, Grant, Holder, Landing, LineOrder, Move, Result, Step
from store import claims, endings, healing, landings, lines, reading, retention, steps, takeover
from store.engine import Database
from store.migrate import migrate
from store.schema import pruned
from tests.test_store.scene import NOON, NS, claim

GROUPS, MEMBERS = 400, 100
BIG = {
    "objects",
    "actions",
    "history",
    "locks",
    "mine",
    "other",
    "later",
    "groups",
    "all_actions",
}  # and what queries call them
PARTIAL = {"actions_open", "objects_under_way", "history_unborn"}  # small whatever the table's size
Work = Callable[[sa.Connection], Any]


def mci(number: int) -> str:
    return f"{NS}:mci:m{number}"


_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count}) "
_FILL = (
    (
        GROUPS,
        "INSERT INTO objects SELECT '{ns}:mci:m' || i, 'mci', '{ns}', '', 'Running', 'Running', 'None', 'None', "
        "{json}, {json}, '', i + 1, {time}, {time} FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO objects SELECT {mci} || {vm}, 'vm', "
        "{mci}, 'aws/eu-1', 'Running', 'Running', 'None', 'None', {json}, {info}, '', "
        "i / {members} + 1, {time}, {time} FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO actions (epoch, run, path, action, force, requested_by, reason, request_id, began_at, ended_at, "
        "\"grant\", outcome) SELECT i + 1, 'run-' || i, '{ns}:mci:m' || (i - i / 3 * 3), 'suspend', {no}, '', '', "
        "'q-' || i, {time}, {time}, {json}, {json} FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO history (path, at, actor, action, source, \"to\", epoch, message) SELECT '{ns}:mci:m' || "
        "(i / {members}) || {vm}, {time}, 'User', 'suspend', 'Running', 'Suspending', "
        "i + 1, '' FROM n",
    ),
    (
        GROUPS * MEMBERS // 4,
        "INSERT INTO locks SELECT '{ns}:mci:m' || (i / {members} + 200) || {vm}, "
        "'{ns}:mci:m' || (i / {members} + 200) || {vm}, 'X', 'run-' || i, 'suspend', "
        "{later} FROM n",
    ),
)


def _fill(connection: sa.Connection) -> None:
    postgres = connection.dialect.name == "postgresql"
    cast = "CAST('{}' AS {})" if postgres else "'{}'"
    words = {
        "ns": NS,
        "mci": f"'{NS}:mci:m' || (i / {MEMBERS})",
        "vm": f"':vm:front-' || (i - i / {MEMBERS} * {MEMBERS} + 1)",
        "members": MEMBERS,
        "no": "false" if postgres else "0",
        "json": cast.format("{}", "JSONB"),
        "info": cast.format('{"generation": 1}', "JSONB"),
        "time": cast.format("2025-12-31 12:00:00.000000", "TIMESTAMPTZ"),
        "later": cast.format("2026-02-01 12:00:00.000000", "TIMESTAMPTZ"),
    }
    for count, statement in _FILL:
        connection.exec_driver_sql(
            (_NUMBERS + statement).format(count=count, **words) if not postgres else _pg(count, statement, words)
        )


def _pg(count: int, statement: str, words: dict[str, Any]) -> str:
    """PostgreSQL wants the numbers before the select that uses them."""
    head, select = statement.split("SELECT", 1)
    return (head + _NUMBERS + "SELECT" + select).format(count=count, **words)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def crowded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """40,000 VMs, as many actions and lines of history, and 10,000 locks; the database was told nothing about them."""
    if request.param == "sqlite":
        file = tmp_path_factory.mktemp("crowded") / "inventory.db"
        template: Path = request.getfixturevalue("migrated_sqlite")
        shutil.copy(template, file)
        database = Database(f"sqlite:///{file}")
    else:
        database = Database(request.getfixturevalue("empty_postgres")())
        migrate(database)
    database.run_here(_fill)
    yield database
    database.close()


def scans(database: Database, work: Work) -> tuple[list[str], Any]:
    """What the statements of `work` would read from end to end."""
    sent: list[tuple[str, Any]] = []

    def before(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        sent.append((statement, parameters[0] if many else parameters))

    sa.event.listen(database.engine, "before_cursor_execute", before)
    try:
        result = database.run_here(work)
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", before)
    found = []
    with database.engine.connect() as connection:
        for statement, parameters in sent:
            if statement.split(None, 1)[0] in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
                plan = _sqlite_scans if database.sqlite else _postgres_scans
                found += [f"{each}: {statement}" for each in plan(connection, statement, parameters)]
    return found, result


def _sqlite_scans(connection: sa.Connection, statement: str, parameters: Any) -> Iterator[str]:
    for *_, detail in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters):
        words = detail.split()
        if words[0] == "SCAN" and words[1] in BIG and not PARTIAL & set(words):
            yield detail


def _postgres_scans(connection: sa.Connection, statement: str, parameters: Any) -> Iterator[str]:
    ((plan,),) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
    nodes: list[tuple[str, dict[str, Any]]] = [("", plan[0]["Plan"])]
    while nodes:
        above, node = nodes.pop()
        nodes += [(node["Node Type"], each) for each in node.get("Plans", [])]
        unbound = (
            above != "Limit" and "Index Name" in node and "Index Cond" not in node and node["Index Name"] not in PARTIAL
        )
        if (node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG) or unbound:
            yield f"{node['Node Type']} {node.get('Relation Name', '')} {node.get('Index Name', '')}"


def begin(path: str, action: str, run: str, **more: Any) -> Work:
    return partial(claims.begin, claim=claim(path, action, run=run, started=NOON, **more))


def reads() -> dict[str, Work]:
    vm = f"{mci(7)}:vm:front-1"
    holders = [Holder(owner=vm, action="suspend", run="run-7", since=NOON)]
    return {
        "one object": partial(reading.get, path=vm, members=False),
        "a group": partial(reading.get, path=mci(7), members=True),
        "a tree": partial(reading.tree, path=mci(7), troubles=10),
        "a list": partial(reading.list_objects, kind="vm", prefix="", after=vm, limit=100),
        "a list of one group": partial(reading.list_objects, kind="vm", prefix=mci(7), after="", limit=100),
        "history": partial(reading.read_history, path=vm, limit=100),
        "locks of one group": partial(reading.holds, prefix=mci(7)),
        "is it open": partial(reading.is_open, path=vm, epoch=7),
        "outcome of a run": partial(_outcome, run="run-nobody"),
        "who is still ahead": partial(lines.still_held, holders=holders),
        "leftovers": healing.leftovers,
    }


def _outcome(connection: sa.Connection, run: str) -> object:
    with pytest.raises(Refused):
        return reading.outcome(connection, run)
    return None


@pytest.mark.parametrize("what", reads())
def test_reads_use_an_index(crowded: Database, what: str) -> None:
    assert scans(crowded, reads()[what])[0] == []


def test_what_a_sweep_suspects_is_found_by_an_index(crowded: Database) -> None:
    """Every lock is looked at, as each is held by an action under way; nothing else is read as a whole."""
    found, _ = scans(crowded, partial(healing.suspects, before=NOON))
    assert [each for each in found if not each.startswith(("SCAN locks", "Seq Scan locks"))] == []


def test_a_request_id_is_found_by_an_index_on_an_object_of_many_actions(crowded: Database) -> None:
    found, admission = scans(crowded, begin(mci(1), "suspend", "asks", request_id="q-nobody"))
    assert found == []
    assert admission.grant
    crowded.run_here(partial(takeover.bury, owner=mci(1), run="asks", at=NOON, message="over"))


def test_retention_uses_indexes_however_many_actions_must_stay(crowded: Database) -> None:
    first = GROUPS * MEMBERS // 2
    begins = Reached(status="Running", came_from="Running")._asdict()
    paths = [f"{mci(first // MEMBERS)}:vm:front-{n + 1}" for n in range(MEMBERS)]

    def pruning(connection: sa.Connection) -> int:
        """As if each VM's history had begun before its one line."""
        with connection.begin_nested() as undone:
            connection.execute(sa.insert(pruned), [{"path": path, **begins} for path in paths])
            found = retention.prune(connection, NOON, first, frozenset(), lambda rows: None)
            undone.rollback()
        return found.actions

    found, gone = scans(crowded, pruning)
    assert found == []
    assert gone == retention.ACTIONS


def finishing(grant: Grant) -> Work:
    return partial(endings.finish, ending=Ending.of(grant, Result.SUCCEEDED, Done(), NOON))


@pytest.mark.parametrize("path", [mci(11), f"{mci(12)}:vm:front-1"], ids=["group", "member"])
def test_an_action_uses_indexes_from_begin_to_finish(crowded: Database, path: str) -> None:
    found, admission = scans(crowded, begin(path, "suspend", path))
    grant = admission.grant
    chunk = grant.chunks[0]
    targets, landed = scans(crowded, partial(landings.targets, chunk=chunk))
    some = [Landing(each.path, "Suspended") for each in landed]
    one = [Landing(some[-1].path, "Suspended", error="told")]
    move = Move(path=path, to="Suspended", action="suspend", actor="Cloud")
    works: Sequence[Work] = (
        partial(landings.land, chunk=chunk, landings=some[:-1], at=NOON),
        partial(landings.land, chunk=chunk, landings=one, at=NOON),
        partial(steps.take, step=Step(path=path, epoch=grant.epoch, at=NOON, moves=[move])),
        finishing(grant),
    )
    found += targets + [each for work in works for each in scans(crowded, work)[0]]
    assert found == []


def test_burying_uses_indexes(crowded: Database) -> None:
    path = mci(13)
    crowded.run_here(begin(path, "suspend", path))
    late = partial(claims.begin, claim=claim(path, "reboot", run="later", started=NOON + timedelta(seconds=1)))
    assert scans(crowded, late)[0] == []
    assert scans(crowded, partial(takeover.bury, owner=path, run="later", at=NOON, message="gone"))[0] == []
    left = Suspect(path=path, owner="", run="", action="suspend", since=NOON, status="Suspending", epoch=7)
    assert scans(crowded, partial(healing.heal, suspect=left, at=NOON, message="gone"))[0] == []
    order = LineOrder(path=path, run="drain", at=NOON)
    assert scans(crowded, partial(lines.close, order=order))[0] == []
    assert scans(crowded, partial(lines.open_again, order=order))[0] == []
