"""docs/glossary.md has the terms of the code, and none that the code no longer uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.cases import every_case

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
TERMS = [
    term
    for cell in re.findall(r"(?m)^\| (.+?) \| ", GLOSSARY)
    if cell not in ("term", "---")
    for term in cell.split(", ")
]
CODE = ("domain", "store", "workflows", "activities", "providers", "workers", "client", "starter")
KEPT = (
    "epoch",
    "grant",
    "land",
    "settle",
    "permit",
    "companion",
    "link",
    "clock",
    "story",
    "from",
    "while",
    "then",
    "else",
    "hooks",
    "audit",
    "recovery",
    "heartbeat",
    "inbox",
    "wait queue",
    "supervisor",
    "abandon",
    "state table",
    "fence",
    "chunk",
    "target",
    "outcome",
    "begin",
    "finish",
)
REPLACED = (
    "rider",
    "crew",
    "keeper",
    "shield",
    "logbook",
    "newborn",
    "unborn",
    "buried",
    "bury",
    "cloudbooks",
    "sqlbook",
    "premises",
    "nursery",
    "faces",
)
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def texts(module: ast.Module) -> Iterator[str]:
    """The names that a module defines or uses, and its strings without its docstrings."""
    nodes = [*ast.walk(module)]
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.arg(arg=name):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in prose:
                yield text


@cache
def code() -> str:
    """Every name and string of the product, as lower-case words, one a line."""
    found: set[str] = set()
    for folder in CODE:
        for file in (ROOT / folder).rglob("*.py"):
            found |= {file.stem, *texts(ast.parse(file.read_text()))}
    apart = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text) for text in found)
    return "\n".join(re.sub(r"[_\s-]+", " ", text).lower() for text in apart)


@every_case("term", TERMS)
def test_every_term_of_the_glossary_is_used_in_the_code(term: str) -> None:
    words = re.sub(r"[\s-]+", " ", term.lower())
    joined = words.replace(" ", "")  # `WAITQUEUE`, `statetable`
    assert re.search(rf"\b({re.escape(words)}|{re.escape(joined)})", code()), f"no name in the code has {term!r}"


@every_case("term", KEPT)
def test_every_word_that_the_code_has_for_itself_is_in_the_glossary(term: str) -> None:
    assert term in TERMS


def test_each_term_is_explained_once() -> None:
    assert sorted(set(TERMS)) == sorted(TERMS)


@every_case("page", PAGES, ids=lambda page: page.name)
def test_no_page_uses_a_word_that_the_code_has_replaced(page: Path) -> None:
    assert not re.findall(rf"(?i)\b(?:{'|'.join(REPLACED)})s?\b", page.read_text())
