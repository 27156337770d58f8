"""No statement scans a large table, except those that say why."""

from __future__ import annotations

import ast
import asyncio
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import store
from store.engine import Database
from store.schema import UtcDateTime
from store.status import ObjectSet
from tests.test_store.crowd import STORE, Sent
from tests.test_store.driver import NOON, StoreDriver
from tests.test_store.tour import STORIES

# Who sends it, and why it may.
ALLOWED = {
    "edge/links.py _LOCK_INSTANCES": "a beginning: a condition follows",
    "leases/capacity.py _LOCK_BOOKINGS": "a beginning: a condition follows",
    "leases/schedule.py _SELECT_OVERDUE_EVENTS": "a beginning: a condition follows",
    "audit.py _": "beginnings: they are read in pages, in the order of an index",
    "healing.py _SELECT_UNOWNED_LOCKS": "a lock lives as long as its action: as many as are under way",
    "healing.py _find_unowned_locks": "a lock lives as long as its action: as many as are under way",
    "machines/hooks.py _list_enabled_nodes": "nodes are few",
    "seals.py _count_sealed_range": "audit verify, which reads every line",
    "seals.py seal_lines": "beginnings: they are read in pages, in the order of an index",
    "systems/hooks.py _SELECT_PARTS": "verify of everything, which asks the backends for everything as well",
    "systems/hooks.py _list_services": "verify of everything, which asks the backends for everything as well",
}
# On PostgreSQL an index is used as soon as it has statistics, which it makes by itself.
ONCE_ANALYZED = ("leases/schedule.py _find_leases_waiting", "audit.py list_paths_begun_since")
# Not tried here: they read by a key or not at all, and what leads to them is rare.
UNTRIED = {
    "clock.py read_database_micros": "reads no table",
    "engine.py _sqlite_engine": "begins a transaction",
    "engine.py configure_connection": "begins a connection",
    "engine.py _enable_wal": "begins a connection",
    "prepared.py execute": "executes what others have built",
    "seals.py may_rewrite_history": "reads no table",
    "advisory.py acquire_key_lock": "reads no table",
    "binding.py check_new_connection": "reads the one row of store_identity",
    "once.py mark_all_done": "only inserts",
    "identity.py mark_restored": "once after a restore, by hand",
    "leases/parts.py fail_contradictory_lease": "one lease, by its path",
    "seals.py _read_last_pruned_epochs": "by path, in audit verify, once retention has removed lines: test_seals.py",
    "retention.py _store_history_begins": "only inserts; the rest of retention is in test_plans.py",
}
BY_NAME = (sa.Select, sa.CompoundSelect, sa.Update, sa.Delete)


def constants() -> Iterator[tuple[str, sa.Executable]]:
    """Every statement that a module of the store has a name for."""
    for module in pkgutil.walk_packages(store.__path__, "store."):
        if ".migrations" not in module.name:
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, ObjectSet):
                    where = f"{module.name.removeprefix('store.').replace('.', '/')}.py {name}"
                    yield from ((where, each) for each in (value.update_statement, value.delete_statement))
                    yield from (
                        (where, each)
                        for each in (value.insert_statement_before_move, value.insert_statement_after_move)
                    )
                reads = isinstance(value, BY_NAME) or (isinstance(value, sa.Insert) and value.select is not None)
                if reads:
                    yield f"{module.name.removeprefix('store.').replace('.', '/')}.py {name}", value


def examples(statement: Any, engine: sa.Engine) -> dict[str, Any]:
    """A value for each parameter, as its type wants it."""
    binds = statement.compile(dialect=engine.dialect).binds.values()
    return {bind.key: _example(bind) for bind in binds if bind.required}


def _example(bind: Any) -> Any:
    kinds: dict[type, Any] = {sa.String: "x", UtcDateTime: NOON, sa.JSON: {}, sa.Boolean: True}
    value = next((each for kind, each in kinds.items() if isinstance(bind.type, kind)), 1)
    return [value, value] if bind.expanding else value


@pytest.fixture(scope="module")
def sent(crowded: Database) -> Sent:
    """All that is sent by the stories of all families, and every statement that has a name."""
    sent = Sent()

    async def tell() -> None:
        driver = StoreDriver(crowded.engine.url.render_as_string(hide_password=False))
        with sent.noted(driver.database.engine):
            for story in STORIES.values():
                await story(driver)
        driver.close()

    asyncio.run(tell())
    for name, statement in constants():
        with crowded.engine.connect() as connection, sent.noted(crowded.engine, name):
            values = examples(statement, crowded.engine)
            connection.execute(statement, values)
    return sent


def test_no_statement_reads_a_large_table_from_end_to_end(crowded: Database, sent: Sent) -> None:
    found = [read for read in sent.whole_reads(crowded) if not read.startswith((*ALLOWED, *ONCE_ANALYZED))]
    assert not found, "\n\n".join(found)


def test_with_statistics_no_join_reads_a_large_table_either(crowded: Database, sent: Sent) -> None:
    found = [read for read in sent.whole_reads(crowded, analyzed=True) if read.startswith(ONCE_ANALYZED)]
    assert not found, "\n\n".join(found)


def test_every_function_that_builds_a_statement_was_tried(sent: Sent) -> None:
    untold = sorted(builders() - sent.senders - set(UNTRIED))
    assert not untold, f"tell a story that sends them in tests/test_store/tour.py: {untold}"


def builders() -> set[str]:
    """Functions that send something else than a statement that has a name."""
    found = set()
    for file in Path(STORE).rglob("*.py"):
        where = str(file.relative_to(STORE))
        if where.startswith("migrat"):
            continue
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef) and any(map(_builds, ast.walk(function))):
                found.add(f"{where} {function.name}")
    return found


def _builds(node: ast.AST) -> bool:
    sends = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "execute"
    if not sends:
        return False
    assert isinstance(node, ast.Call)
    named = isinstance(node.args[0], ast.Name) and node.args[0].id.isupper()
    return not named
