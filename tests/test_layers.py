"""Imports between layers, purity of the domain, file names, file lengths and docstrings."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

from domain.registry import KINDS
from tests.cases import every_case
from workers import families

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = {family.name for family in families.FAMILIES}

# Each layer, and the layers besides itself that it may import.
MAY_IMPORT: dict[str, set[str]] = {
    "domain": set(),
    "store": {"domain"},
    "providers": {"domain"},
    "activities": {"domain"},
    "workflows": {"domain", "activities"},
    "client": {"domain", "activities"},
    "workers": {"domain", "store", "providers", "activities", "workflows", "client"},
    "gateway": {"domain", "store", "activities", "client", "workers"},
    "starter": {"domain", "activities", "workflows", "client", "workers", "gateway"},
}
# The only modules of the CLI that reach into workers: they run some, or say what one that starts here would meet.
RUNS_WORKERS = {
    *("starter.audit", "starter.policies"),  # they read the store themselves
    *("starter.stack", "starter.demo", "starter.doctor", "starter.security"),
    *("starter.edge.crm", "starter.edge.demo", "starter.leases.metal", "starter.systems.demo"),
}
LONGEST = 400  # lines of a file
SAID = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base"}

# What pure code has no use for: the clock, the world, other threads.
IMPURE_MODULES = {
    *("asyncio", "concurrent", "ctypes", "fcntl", "glob", "http", "io", "logging", "multiprocessing", "os", "pathlib"),
    *(
        "pickle",
        "random",
        "secrets",
        "select",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
    ),
    *("threading", "time", "urllib", "uuid"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
CLOCKS = {"now", "utcnow", "today"}


@dataclass(frozen=True)
class Module:
    """A source file, by its dotted name."""

    name: str
    source: str

    @property
    def layer(self) -> str:
        return self.name.split(".")[0]

    @property
    def family(self) -> str | None:
        """A family is one file, or one package, directly in a layer: `providers.simulated.vms` is not one."""
        words = self.name.split(".")
        return words[1] if len(words) > 1 and words[1] in FAMILIES else None

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Everything in it. To walk takes as long as to parse."""
        return [*ast.walk(ast.parse(self.source))]


def modules(layer: str) -> list[Module]:
    found = []
    for path in sorted((ROOT / layer).rglob("*.py")):
        words = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(words[:-1] if words[-1] == "__init__" else words)
        found.append(Module(name, path.read_text()))
    return found


EVERYTHING = [module for layer in MAY_IMPORT for module in modules(layer)]
DOMAIN = [module for module in EVERYTHING if module.layer == "domain"]


@cache
def imports(module: Module) -> list[str]:
    """Dotted names, wherever in the file they are imported: `from domain import mci` is domain.mci."""
    by_name = module.name in ("starter.families", "domain.registry")  # they import families by name
    found = [f"{module.layer}.{family}" for family in FAMILIES if by_name]
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name}: relative imports hide where they lead"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def wrong_layers(module: Module) -> list[str]:
    """Imports of a layer that this one must not know."""
    layers = {*MAY_IMPORT, "tests", "bench"}
    allowed = {module.layer, *MAY_IMPORT[module.layer]}
    return [name for name in imports(module) if name.split(".")[0] in layers - allowed]


def layers_of(module: Module) -> set[str]:
    """The layers that it imports from."""
    return {name.split(".")[0] for name in imports(module)}


def foreign_families(module: Module) -> list[str]:
    """Imports by one family of another, in whatever layer."""
    found = [(name, name.split(".")) for name in imports(module)]
    return [
        name
        for name, words in found
        if words[0] in MAY_IMPORT and len(words) > 1 and words[1] in FAMILIES - {module.family or ""}
    ]


def circles(several: Sequence[Module]) -> list[list[str]]:
    """Modules that import each other, directly or in a ring. Imports in functions and for types alone count as well."""
    names = {module.name for module in several}
    ahead = {module.name: {_module(name, names) for name in imports(module)} & names for module in several}
    # A module without imports among those that are left is in no circle, and neither is what then has none.
    while free := {name for name, others in ahead.items() if not others - {name}}:
        ahead = {name: others - free for name, others in ahead.items() if name not in free}
    reached = {name: _reached(name, ahead) for name in ahead}
    rings = {frozenset(other for other in reached[name] if name in reached[other]) for name in ahead}
    return sorted(sorted(ring) for ring in rings if len(ring) > 1)


def _module(name: str, known: Set[str]) -> str:
    """`starter.output.print_sheet` is in starter.output."""
    return name if name in known else name.rpartition(".")[0]


def _reached(name: str, ahead: Mapping[str, Set[str]]) -> set[str]:
    found: set[str] = set()
    new = {name}
    while new:
        new = {other for each in new for other in ahead[each]} - found
        found |= new
    return found


def strangers(module: Module) -> list[str]:
    """Imports that are neither the standard library's nor pydantic's nor our own layer's."""
    known = {*sys.stdlib_module_names, "pydantic", "pydantic_core", module.layer}
    return [name for name in imports(module) if name.split(".")[0] not in known]


def impurities(module: Module) -> list[str]:
    """What reaches out of the pure layer: imports, calls and clocks."""
    found = [name for name in imports(module) if name.split(".")[0] in IMPURE_MODULES]
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            found.append(f"{node.func.id}() in line {node.lineno}")
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS:
            found.append(f".{node.attr} in line {node.lineno}")
        if isinstance(node, ast.AsyncFunctionDef | ast.Await) and not _in_protocol(module, node):
            found.append(f"async in line {node.lineno}")
    return found


def _in_protocol(module: Module, node: ast.AST) -> bool:
    """A protocol only says what others do: nothing is awaited in it."""
    protocols = [
        each
        for each in module.nodes
        if isinstance(each, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in each.bases)
    ]
    return any(node in ast.walk(protocol) for protocol in protocols)


def kind_checks(module: Module) -> list[str]:
    """Comparisons with the literal name of a kind: what differs between kinds belongs into the registry."""
    found = []
    for node in module.nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            about_kind = any("kind" in ast.unparse(side).lower() for side in sides if not _words(side))
            literals = {word for side in sides for word in _words(side)}
            if literals & set(KINDS) or (literals and about_kind):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.MatchValue) and _words(node.value) & set(KINDS):
            found.append(f"line {node.lineno}: case {ast.unparse(node)}")
    return found


def _words(node: ast.expr) -> set[str]:
    """The words of a literal string, or of a literal collection of them."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return set()
    several = value if isinstance(value, tuple | list | set | frozenset) else [value]
    return {word for word in several if isinstance(word, str) and word}


def name_of(module: Module) -> str:
    return module.name


@every_case("layer", MAY_IMPORT)
def test_every_layer_is_there_to_be_read(layer: str) -> None:
    assert [module for module in EVERYTHING if module.layer == layer]


@every_case("module", EVERYTHING, ids=name_of)
def test_imports_go_one_way(module: Module) -> None:
    assert wrong_layers(module) == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circles(EVERYTHING) == []


def test_the_cli_reaches_into_workers_only_to_run_them() -> None:
    starter = [module for module in EVERYTHING if module.layer == "starter"]
    assert {module.name for module in starter if "workers" in layers_of(module)} == RUNS_WORKERS


@every_case("module", [module for module in EVERYTHING if module.family], ids=name_of)
def test_a_family_knows_no_other_family(module: Module) -> None:
    assert foreign_families(module) == []


@every_case("module", DOMAIN, ids=name_of)
def test_the_domain_needs_nothing_but_python_and_pydantic(module: Module) -> None:
    assert strangers(module) == []


@every_case("module", DOMAIN, ids=name_of)
def test_the_domain_reaches_nothing_outside_itself(module: Module) -> None:
    assert impurities(module) == []


@every_case("module", [module for module in EVERYTHING if not module.family], ids=name_of)
def test_the_kernel_does_not_ask_which_kind_it_has(module: Module) -> None:
    assert kind_checks(module) == []


@every_case("module", [module for module in EVERYTHING if module.layer == "workflows"], ids=name_of)
def test_workflows_do_no_io(module: Module) -> None:
    outside = {"os", "pathlib", "socket", "sqlite3", "sqlalchemy", "subprocess", "random", "time", "uuid", "boto3"}
    assert [name for name in imports(module) if name.split(".")[0] in outside] == []


@every_case("module", EVERYTHING, ids=name_of)
def test_files_are_named_by_what_they_are(module: Module) -> None:
    assert BANNED_NAMES.isdisjoint(module.name.split("."))


# The checks themselves: each must find what it is there to find.


@every_case(
    ("name", "source"),
    [
        ("domain.statetable", "import store"),
        ("domain.statetable", "from store.schema import objects"),
        ("store.engine", "from providers import simulated"),
        ("store.engine", "def f():\n    from activities import mci"),
        ("providers.aws", "from store.engine import Database"),
        ("activities.mci", "from store.inventory import SqlInventory"),
        ("activities.mci", "from workflows.mci import Control"),
        ("workflows.mci", "if True:\n    import store.engine"),
        ("starter.main", "from store import migrate"),
        ("starter.main", "import providers.simulated as cloud"),
        ("workers.main", "from starter import output"),
        ("workers.main", "from tests import conftest"),
        ("client.actions", "from workers.settings import Settings"),
        ("client.actions", "def f():\n    from starter import output"),
    ],
)
def test_a_wrong_import_is_found(name: str, source: str) -> None:
    assert wrong_layers(Module(name, source))
    assert not wrong_layers(Module(name, f"import {name.split('.')[0]}\nfrom domain import paths"))


@pytest.mark.parametrize(
    "closing",
    [
        "import starter.a",
        "from starter.a import thing",
        "def f():\n    from starter import a",
        "if TYPE_CHECKING:\n    from starter.a import Thing",
    ],
)
def test_a_circle_is_found(closing: str) -> None:
    a, b = Module("starter.a", "from starter import b"), Module("starter.b", "from starter.c import x")
    outside = Module("starter.d", "import starter.a\nfrom starter.e import y")
    assert circles([a, b, Module("starter.c", closing), outside, Module("starter.e", "")]) == [
        ["starter.a", "starter.b", "starter.c"]
    ]
    assert circles([a, b, Module("starter.c", "import json"), outside, Module("starter.e", "")]) == []


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("workflows.mci", "from workflows.leases import Lease", True),
        ("workflows.mci", "from domain import leases", True),
        ("store.mci.counts", "import domain.edge", True),
        ("workflows.mci", "from domain import mci, wire", False),
        ("workflows.mci", "from activities.mci import VmActivities", False),
    ],
)
def test_a_family_that_knows_another_is_found(name: str, source: str, found: bool) -> None:
    module = Module(name, source)
    assert module.family == "mci"
    assert bool(foreign_families(module)) is found


@pytest.mark.parametrize("source", ["import temporalio", "from sqlalchemy import select", "import yaml.nodes"])
def test_a_stranger_in_the_domain_is_found(source: str) -> None:
    assert strangers(Module("domain.x", source))
    assert not strangers(Module("domain.x", "import re\nfrom pydantic import BaseModel\nfrom domain import paths"))


@every_case(
    "source",
    [
        "import os",
        "from time import time",
        "import socket",
        "import asyncio",
        "open('x')",
        "from datetime import datetime\nat = datetime.now()",
        "from datetime import date\nclock = date.today",
        "async def f() -> None: ...",
    ],
)
def test_an_impurity_is_found(source: str) -> None:
    assert impurities(Module("domain.x", source))


def test_a_protocol_may_speak_of_waiting() -> None:
    assert not impurities(Module("domain.x", "class P(Protocol):\n    async def f(self) -> None: ..."))


@every_case(
    ("source", "found"),
    [
        ("if kind == 'lease': pass", True),
        ("if 'vm' == word: pass", True),
        ("if row['kind'] != 'disk': pass", True),
        ("if kind.name in ('a', 'b'): pass", True),
        ("match kind:\n    case 'vm': pass", True),
        ("match fault.kind:\n    case Kind.SLOW: pass", False),
        ("if kind == other: pass", False),
        ("if kind is None: pass", False),
        ("if status == 'Running': pass", False),
    ],
)
def test_a_question_for_the_kind_is_found(source: str, found: bool) -> None:
    assert bool(kind_checks(Module("store.x", source))) is found


def product() -> Iterator[Path]:
    """Every file of ours that is shipped; steps of the schema are named by their numbers, and said in their files."""
    for layer in MAY_IMPORT:
        yield from (file for file in (ROOT / layer).rglob("*.py") if "versions" not in file.parts)


def test_every_module_and_whatever_others_may_use_is_said_in_a_line() -> None:
    silent = []
    for file in product():
        tree = ast.parse(file.read_text())
        public = [each for each in tree.body if isinstance(each, SAID) and not each.name.startswith("_")]
        silent += [f"{file}: {getattr(each, 'name', 'the module')}" for each in (tree, *public) if not said(each)]
    assert silent == []


def said(part: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    return ast.get_docstring(part) or ""


def test_no_file_is_too_long_to_be_read() -> None:
    files = [*product(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").glob("*.py"), *(ROOT / "bench").glob("*.py")]
    assert [str(file) for file in files if len(file.read_text().splitlines()) > LONGEST] == []
