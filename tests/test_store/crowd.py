"""A large store of each kind, and a check which statements scan a large table.

Large enough that a database reads by an index if there is one, and it was told nothing of what is in the tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import sqlalchemy as sa

from store.engine import Database
from tests.test_store.driver import NS

GROUPS, MEMBERS = 400, 100
SMALL = {  # a line per cloud, region, worker, system or sweep
    "connections",
    "heal_reports",
    "permits",
    "store_identity",
    "system_numbers",
    "alembic_version",
}
PARTIAL = {  # small whatever the table's size
    "actions_open",
    "actions_open_by_path",
    "objects_under_way",
    "history_unborn",
    "objects_in_bin",
}
EXPLAINED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
STORE, TESTS = str(Path(__file__).parents[2] / "store"), str(Path(__file__).parents[1])

_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count}) "
_OBJECT = "'Running', 'Running', 'None', 'None', {json}, "
_FILL = (
    (
        GROUPS,
        "INSERT INTO objects SELECT '{ns}:mci:m' || i, 'mci', '{ns}', '', " + _OBJECT + "{json}, '', i + 1, {time}, "
        "{time}, NULL FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO objects SELECT {mci} || {vm}, 'vm', {mci}, 'aws/eu-1', " + _OBJECT + "{info}, '', "
        "i / {members} + 1, {time}, {time}, NULL FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO actions (epoch, run, path, action, force, requested_by, reason, request_id, began_at, ended_at, "
        "\"grant\", outcome) SELECT i + 1, 'old-' || i, '{ns}:mci:m' || (i - i / 3 * 3), 'suspend', {no}, '', '', "
        "'q-' || i, {time}, {time}, {json}, {json} FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO history (path, at, actor, action, source, \"to\", epoch, message) SELECT '{ns}:mci:m' || "
        "(i / {members}) || {vm}, {time}, 'User', 'suspend', 'Running', 'Suspending', i + 1, '' FROM n",
    ),
    (
        GROUPS * MEMBERS // 4,
        "INSERT INTO locks SELECT '{ns}:mci:m' || (i / {members} + 200) || {vm}, "
        "'{ns}:mci:m' || (i / {members} + 200) || {vm}, 'X', 'old-' || i, 'suspend', {later} FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO objects SELECT 'account:a' || (i / {members}) || ':cloudspace:c:machine:m' || i, 'machine', "
        "'account:a' || (i / {members}) || ':cloudspace:c', '', " + _OBJECT + "{json}, '', 1, {time}, {time}, NULL "
        "FROM n",
    ),
    (4 * GROUPS * MEMBERS, "INSERT INTO pruned SELECT 'ns:gone:mci:m' || i, 'Running', 'Running', 'None', 1 FROM n"),
    (GROUPS * MEMBERS, "INSERT INTO tenant_usage SELECT 'ns:t' || (i / 16), i - i / 16 * 16, 1, 1 FROM n"),
    (GROUPS * MEMBERS, "INSERT INTO tenant_rates SELECT 'ns:t' || i, 1 FROM n"),
    (GROUPS * MEMBERS, "INSERT INTO connection_uses SELECT '{ns}', 'aws/eu-' || (i / 1000), '{ns}:mci:m' || i FROM n"),
    (GROUPS * MEMBERS, "INSERT INTO unanswered SELECT 'aws/eu-' || (i / 1000), '{ns}:mci:m' || i, 1, {time} FROM n"),
    (
        GROUPS * MEMBERS,
        "INSERT INTO lease_hosts SELECT {host}, 'p' || (i / {members}), 4, 4, 4, {yes} FROM n",
    ),
    (GROUPS * MEMBERS, "INSERT INTO lease_properties SELECT {host}, 'vcpus', '4', 4 FROM n"),
    (
        GROUPS * MEMBERS,
        "INSERT INTO aliases (dialect, uuid, path, generation) SELECT 'blazar', '', {host}, 1 FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO aliases (dialect, uuid, path, generation) SELECT 'blazar', 'u' || i, {lease}, 1 FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO lease_bookings SELECT {lease} || ':reservation:r1', {lease}, 'x' || (i / {members}), "
        "'p' || (i / {members}), 't', 1, {time}, {later}, 1, {yes}, 0, 0, 0, {list}, NULL, NULL, {no} FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO lease_allocations (host, ends, starts, reservation, lease, units, whole, vcpus, memory_mb, "
        "disk_gb, phase) SELECT {host}, {later}, {time}, {lease} || ':reservation:r1', {lease}, 1, {yes}, 0, 0, 0, "
        "'held' FROM n",
    ),
    (
        GROUPS * MEMBERS,
        "INSERT INTO lease_timers SELECT {lease} || ':event:end_lease', {lease}, 'p' || (i / {members}), 'end_lease', "
        "{later} FROM n",
    ),
)


def fill(connection: sa.Connection) -> None:
    """40,000 lines in each table that grows with use, and 10,000 locks."""
    postgres = connection.dialect.name == "postgresql"
    cast = "CAST('{}' AS {})" if postgres else "'{}'"
    words = {
        "ns": NS,
        "mci": f"'{NS}:mci:m' || (i / {MEMBERS})",
        "vm": f"':vm:front-' || (i - i / {MEMBERS} * {MEMBERS} + 1)",
        "host": f"'pool:p' || (i / {MEMBERS}) || ':host:h' || i",
        "lease": f"'project:x' || (i / {MEMBERS}) || ':lease:l' || i",
        "members": MEMBERS,
        "no": "false" if postgres else "0",
        "yes": "true" if postgres else "1",
        "json": cast.format("{}", "JSONB"),
        "list": cast.format("[]", "JSONB"),
        "info": cast.format('{"generation": 1}', "JSONB"),
        "time": cast.format("2025-12-31 12:00:00.000000", "TIMESTAMPTZ"),
        "later": cast.format("2026-02-01 12:00:00.000000", "TIMESTAMPTZ"),
    }
    for count, statement in _FILL:
        head, select = statement.split("SELECT", 1)
        text = head + _NUMBERS + "SELECT" + select if postgres else _NUMBERS + statement
        connection.exec_driver_sql(text.format(count=count, **words))
        if postgres:  # which would learn what is in the tables while the tests run
            table = head.split()[2]
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")


def sender() -> str:
    """The function of the store that sends the statement of the moment; empty: a test does."""
    frame: FrameType | None = sys._getframe(2)
    while frame:
        file = frame.f_code.co_filename
        if file.startswith(TESTS):
            return ""
        if file.startswith(STORE) and not file.endswith(("engine.py", "prepared.py")):
            return f"{file.removeprefix(STORE + '/')} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


class Sent:
    """Notes the statements that the store sends, each text once."""

    def __init__(self) -> None:
        self.senders: set[str] = set()
        self._statements: dict[str, tuple[str, Any]] = {}  # text -> who sent it, parameters

    @contextmanager
    def noted(self, engine: sa.Engine, by: str = "") -> Iterator[None]:
        """Collects what is sent within the block. `by` names the sender; without it, the call stack tells."""
        self._by = by
        sa.event.listen(engine, "before_cursor_execute", self._note)
        try:
            yield
        finally:
            sa.event.remove(engine, "before_cursor_execute", self._note)

    def _note(self, _connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if statement.startswith(EXPLAINED) and (by := self._by or sender()):
            self.senders.add(by)
            self._statements.setdefault(statement, (by, parameters[0] if many else parameters))

    def whole_reads(self, crowd: Database, analyzed: bool = False) -> list[str]:
        """Tables, or all objects of a kind, that these statements would read from the first line to the last."""
        plan = _on_sqlite if crowd.sqlite else _on_postgres
        with crowd.engine.connect() as connection:  # nothing is committed: what was analyzed is forgotten again
            if analyzed:
                connection.exec_driver_sql("ANALYZE")
            return [
                f"{by}: {found}: {statement}"
                for statement, (by, parameters) in self._statements.items()
                for found in plan(connection, statement, parameters)
            ]


def _on_sqlite(connection: sa.Connection, statement: str, parameters: Any) -> Iterator[str]:
    for *_, detail in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters):
        words = detail.split()
        if words[0] not in ("SCAN", "SEARCH") or words[1] in SMALL or PARTIAL & set(words):
            continue
        of_a_kind = detail.endswith(("(kind=?)", "(path>?)"))
        derived = words[1].startswith(("(", "anon")) or detail == "SCAN CONSTANT ROW"
        if (words[0] == "SCAN" and not derived) or of_a_kind:
            yield detail


def _on_postgres(connection: sa.Connection, statement: str, parameters: Any) -> Iterator[str]:
    ((plan,),) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
    nodes: list[tuple[str, dict[str, Any]]] = [("", plan[0]["Plan"])]
    while nodes:
        above, node = nodes.pop()
        nodes += [(node["Node Type"], each) for each in node.get("Plans", [])]
        index, condition = node.get("Index Name"), node.get("Index Cond", "")
        unbound = index and index not in PARTIAL and above != "Limit" and not condition
        of_a_kind = re.fullmatch(r"\(\(kind\)::text = [^)]*\)", condition)
        if (node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL) or unbound or of_a_kind:
            yield f"{node['Node Type']} {node.get('Relation Name', '')} {index or ''} {condition}"
