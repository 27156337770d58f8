"""Statuses and history lines are written by `store/status.py` and by nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import store

STORE = Path(store.__file__).parent
WRITER = "status.py"
ALLOWED = {
    "retention.py delete(history)": "it removes old lines, once they are exported; it writes none",
    "identity.py update(history)": "a restore renumbers the transactions of lines; it changes nothing that they say",
}
TABLES = ("objects", "history")
WRITES = ("insert", "update", "delete", "merge")
SQL = re.compile(r"\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+\"?(objects|history)\b", re.IGNORECASE)


def writes(source: str) -> Iterator[str]:
    """Every statement of a source that writes to the tables of objects and of history lines, however it is spelled."""
    tree = ast.parse(source)
    names = {table: table for table in TABLES}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {name.asname: name.name for name in node.names if name.asname and name.name in TABLES}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := SQL.search(node.value)):
            yield found[0]
        if not isinstance(node, ast.Call):
            continue
        verb = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        about = [*node.args[:1], *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        for each in about:
            name = each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "")
            if verb in WRITES and name in names:
                yield f"{verb}({names[name]})"


def test_only_the_writer_of_status_writes_objects_and_history() -> None:
    files = {str(file.relative_to(STORE)): file for file in STORE.rglob("*.py")}
    sources = {name: file.read_text() for name, file in files.items() if not name.startswith("migrations/")}
    assert set(writes(sources.pop(WRITER))) == {f"{verb}(objects)" for verb in WRITES[:3]} | {"insert(history)"}
    found = {f"{name} {what}" for name, source in sources.items() for what in writes(source)}
    assert found == set(ALLOWED), "say it with the functions of store/status.py"


@pytest.mark.parametrize(
    "source",
    [
        "sa.update(objects).where(x)",
        "insert(schema.history)",
        "objects.delete()",
        "from store.schema import objects as o\nsa.insert(o)",
        "sa.text('UPDATE objects SET status = 1')",
    ],
)
def test_another_writer_would_be_found(source: str) -> None:
    assert list(writes(source))
