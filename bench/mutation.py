"""How much the tests see: small faults are put into the code, one at a time, and the tests should notice each.

    .venv/bin/python -m bench.mutation --number 60 --layers domain store

Everything is loaded once. Each mutant gets a forked process in which its function has the fault, and meets the tests
that need no server until one fails: first the files that name its function or import its module, then those of its
layer and family in the fast tier. Workflows run outside of the sandbox there, which would load them without the fault.
With --all, what survived meets every test of its layer and family, in a copy of the tree; so does, in any case, a fault
outside of functions (a row of a table, a statement). Prints what killed each, and every survivor.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from types import CodeType, FunctionType

import pytest
from _pytest.runner import runtestprotocol

from tests.tiers import is_fast
from workers import plugin
from workers.families import FAMILIES

ROOT = Path(__file__).parents[1]
NEED_A_SERVER = {"action_stack", "stack", "client", "user", "forkserver", "cluster_url", "postgres_url", "pair"}
NO_TESTS = 5  # pytest's exit code if none was chosen
LAYERS = ("domain", "store", "workflows")
NAMES = [family.name for family in FAMILIES]
SECONDS = 300  # for one stage; a mutant that waits for ever is noticed as well
NEAREST_SECONDS = 30  # recorded durations of the files in the first stage
USUAL = 5  # seconds of a file that nobody has measured
DURATIONS = json.loads((ROOT / "tests" / "durations.json").read_text())
OPPOSITE: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq(), ast.Lt: ast.GtE(), ast.GtE: ast.Lt(), ast.Gt: ast.LtE(),
    ast.LtE: ast.Gt(), ast.In: ast.NotIn(), ast.NotIn: ast.In(), ast.Is: ast.IsNot(), ast.IsNot: ast.Is(),
}  # fmt: skip
# Tests without a server and a database. What the others begin with is in `stages_of_test_files`.
PURE = (
    *(
        "test_statetable",
        "test_creation",
        "test_paths",
        "test_locks",
        "test_mci",
        "test_mci_status",
        "test_mci_request",
    ),
    *("test_connections", "test_systems/test_rules", "test_systems/test_definition", "test_systems/test_locks"),
    *("test_leases/test_rules", "test_leases/test_tables", "test_machines/test_tables"),
    *("test_edge/test_interpret", "test_edge/test_tables", "test_edge/test_policies", "test_admission"),
)


@dataclass(frozen=True)
class Mutant:
    """One fault at one place."""

    file: str
    line: int
    kind: str
    what: str
    name: str  # of the function or table that it is in
    function: str  # the qualified name of the outermost function around it; empty: it is in none
    text: str  # of the whole file, with the fault

    @property
    def layer(self) -> str:
        return self.file.split("/")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {self.what}"


def generate_mutants(file: str, text: str) -> Iterator[Mutant]:
    """Every fault that can be put into a file."""
    tree = ast.parse(text)
    names = find_enclosing_names(tree)
    for node in ast.walk(tree):
        for kind, changed in mutate_node(node):
            old = ast.get_source_segment(text, node) or ""
            new = f"({ast.unparse(changed)})" if isinstance(changed, ast.expr) else _indent_statement(changed, node)
            new = f"el{new}" if old.startswith("elif") else new
            if isinstance(node, ast.Tuple) and not old.startswith("("):
                continue  # the elements of a subscript
            what = f"{' '.join(old.split())[:60]} → {' '.join(new.split())[:60]}"
            line: int = node.lineno  # type: ignore[attr-defined]
            yield Mutant(file, line, kind, what, *names[node], _splice_source(text, node, new))


def find_enclosing_names(tree: ast.Module) -> dict[ast.AST, tuple[str, str]]:
    """For each node the innermost name around it, and the qualified name of the outermost function around it."""
    found: dict[ast.AST, tuple[str, str]] = {}

    def walk(node: ast.AST, name: str, classes: str, function: str) -> None:
        match node:
            case ast.FunctionDef(name=own) | ast.AsyncFunctionDef(name=own):
                name, function = own, function or classes + own
            case ast.ClassDef(name=own):
                name, classes = own, f"{classes}{own}."
            case ast.Assign(targets=[ast.Name(id=own)]) | ast.AnnAssign(target=ast.Name(id=own)) if not name:
                name = own
        found[node] = name, function
        for child in ast.iter_child_nodes(node):
            walk(child, name, classes, function)

    walk(tree, "", "", "")
    return found


def mutate_node(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What can be wrong with a node, and the node that is."""
    changed = deepcopy(node)
    match changed:
        case ast.Compare(ops=[op]) if type(op) in OPPOSITE:
            changed.ops = [OPPOSITE[type(op)]]
            yield "flip a comparison", changed
        case ast.BoolOp():
            changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
            yield "and for or", changed
        case ast.If(orelse=[_, *_]) | ast.IfExp():
            changed.body, changed.orelse = changed.orelse, changed.body
            yield "swap then and else", changed
        case ast.If():
            changed.test = ast.UnaryOp(ast.Not(), changed.test)
            yield "swap then and else", changed
        case ast.Tuple(elts=rows) | ast.List(elts=rows) if len(rows) > 2 and all(
            isinstance(row, ast.Call) for row in rows
        ):
            for number in range(len(rows)):
                fewer = deepcopy(node)
                assert isinstance(fewer, ast.Tuple | ast.List)
                del fewer.elts[number]
                yield "drop a row", fewer
        case ast.Call(func=ast.Attribute(attr="with_for_update", value=query)):
            yield "skip a lock", query
        case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))) if "lock" in name:
            yield "skip a lock", ast.Pass()


def _indent_statement(statement: ast.AST, place: ast.AST) -> str:
    margin = "\n" + " " * place.col_offset  # type: ignore[attr-defined]
    return ast.unparse(statement).replace("\n", margin)


def _splice_source(text: str, node: ast.AST, new: str) -> str:
    lines = text.encode().splitlines(keepends=True)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]  # type: ignore[attr-defined]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])  # type: ignore[attr-defined]
    return (before + new.encode() + after).decode()


def choose_mutants(number: int, layers: list[str], chance: random.Random, functions: bool = False) -> list[Mutant]:
    """As many of every layer, and in each as many of every kind, as there are."""
    wanted = []
    for layer in layers:
        kinds: defaultdict[str, list[Mutant]] = defaultdict(list)
        for path in sorted((ROOT / layer).rglob("*.py")):
            if "versions" not in path.parts:
                for mutant in generate_mutants(path.relative_to(ROOT).as_posix(), path.read_text()):
                    if mutant.function or not functions:
                        kinds[mutant.kind].append(mutant)
        for several in kinds.values():
            chance.shuffle(several)
        share = -(-number // len(layers))
        while share and any(kinds.values()):
            for several in filter(None, list(kinds.values())[:share]):
                wanted.append(several.pop())
                share -= 1
    return wanted[:number]


def stages_of_test_files(mutant: Mutant, everything: bool) -> Iterator[list[str]]:
    """The test files that can see a mutant, the quickest first; none twice."""
    family = next((name for name in NAMES if name in mutant.file.split("/") or mutant.file.endswith(f"/{name}.py")), "")
    own = sorted(
        ROOT.glob(f"tests/test_{family}/test_*.py") if family and family != "mci" else ROOT.glob("tests/test_mci*.py")
    )
    pure, store = [ROOT / f"tests/{name}.py" for name in PURE], sorted(ROOT.glob("tests/test_store/test_*.py"))
    actions = [ROOT / f"tests/{name}.py" for name in ("test_replay", "test_actions", "test_asking", "test_permits")]
    quick = [file for file in store if recorded_seconds(file.relative_to(ROOT).as_posix()) <= NEAREST_SECONDS / 2]
    several = {"domain": [pure], "store": [quick], "workflows": [actions]}[mutant.layer]
    several += [store, own] if everything else [own]
    told = set[str]()
    for files in ([ROOT / name for name in find_nearest_tests(mutant)], *several):
        names = [file.relative_to(ROOT).as_posix() for file in files if everything or is_fast(file)]
        if new := sorted((name for name in names if name not in told), key=recorded_seconds):
            told |= set(new)
            yield new


def find_nearest_tests(mutant: Mutant) -> list[str]:
    """Fast test files that name the mutant's function or import its module, within a few seconds of work."""
    module = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, last = module.rpartition(".")
    imports = rf"(?:from|import) {re.escape(module)}\b|from {re.escape(package)} import .*\b{last}\b"
    texts = {name: (ROOT / name).read_text() for name in list_fast_tests()}
    ways = [rf"\b{re.escape(mutant.name)}\b"] if mutant.name else []
    found: list[str] = []
    for way in (*ways, imports):
        found += sorted(
            (name for name, text in texts.items() if name not in found and re.search(way, text)), key=recorded_seconds
        )
    kept, seconds = list[str](), 0.0
    for name in found:
        if (seconds := seconds + recorded_seconds(name)) <= NEAREST_SECONDS:
            kept.append(name)
    return kept


@cache
def list_fast_tests() -> list[str]:
    return [file.relative_to(ROOT).as_posix() for file in sorted(ROOT.glob("tests/**/test_*.py")) if is_fast(file)]


def recorded_seconds(name: str) -> float:
    """Returns how long a test file took when durations were last recorded."""
    return float(DURATIONS.get(name, USUAL))


class TreeCopy:
    """The tree, once more: what is tried here is nowhere else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(lambda name: (ROOT / name).exists(), tracked.splitlines()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        (folder / ".venv").symlink_to(ROOT / ".venv")
        self._later = 0

    def write(self, file: str, text: str) -> None:
        """Compiled files are found by the second in which their source was written: let that be another one."""
        self._later += 2
        path = self._folder / file
        path.write_text(text)
        os.utime(path, (path.stat().st_mtime + self._later,) * 2)

    def run_until_failure(self, files: list[str], *words: str) -> str:
        """The test that fails first; empty: they pass."""
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "--tb=no", "-p", "no:cacheprovider"]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                [*command, *words, *files], cwd=self._folder, stdout=said, stderr=said, start_new_session=True
            )
            try:
                code = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                return f"no end within {SECONDS} s"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait()
            said.seek(0)
            text = said.read().decode(errors="replace")
            failed = re.search(r"(?m)^(?:FAILED|ERROR) (\S+)", text)
            return "" if code in (0, NO_TESTS) else failed[1] if failed else f"ended with {code}"


class MutantTrialPlugin:
    """A pytest plugin: instead of the tests, it runs a forked process with some of them for each mutant."""

    def __init__(self, wanted: list[Mutant]) -> None:
        self._wanted = wanted
        self.killers: dict[Mutant, str] = {}  # what killed it; empty: nothing did

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.unfreeze()
        by_file: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            assert isinstance(item, pytest.Function)
            if "postgres" not in item.nodeid and not NEED_A_SERVER & set(item.fixturenames):
                by_file[item.nodeid.partition("::")[0]].append(item)
        near = {file for mutant in self._wanted for files in stages_of_test_files(mutant, False) for file in files}
        broken = run_forked_tests(None, session, [item for file in sorted(near) for item in by_file[file]]).split("\n")
        print(f"left out, as they fail without any fault: {broken}" if any(broken) else "all pass without a fault")
        for mutant in self._wanted:
            items = [item for files in stages_of_test_files(mutant, False) for file in files for item in by_file[file]]
            items = [item for item in items if item.nodeid not in broken]
            began = monotonic()
            killer = run_forked_tests(mutant, session, items)
            if killer and run_forked_tests(None, session, [item for item in items if item.nodeid == killer]):
                print(f"not tried: {killer} fails without the fault as well, which it did not at first: {mutant}")
                continue
            self.killers[mutant] = killer
            print(f"{'killed' if killer else 'SURVIVED'} {mutant} ({monotonic() - began:.0f} s) {killer}", flush=True)
        return True


def run_forked_tests(mutant: Mutant | None, session: pytest.Session, items: list[pytest.Item]) -> str:
    """Runs tests in a forked process that has the fault, and returns the first that fails; without a fault, all."""
    mine, its = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setsid()
            if mutant:
                runner = plugin.workflow_runner(sandbox=False)
                plugin.workflow_runner = lambda sandbox: runner
                patch_mutant_function(mutant)
            pairs = zip(items, [*items[1:], None], strict=True)
            failed = (item.nodeid for item, following in pairs if not run_test_item(item, following))
            killer = next(failed, "") if mutant else "\n".join(failed)
            session._setupstate.teardown_exact(None)
            os.write(its, killer.encode())
        except BaseException as error:
            os.write(its, repr(error).encode())
        finally:
            os._exit(0)
    os.close(its)
    with os.fdopen(mine, "rb") as pipe:
        ended = select.select([pipe], [], [], SECONDS if mutant else None)[0]
        if not ended:
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return pipe.read().decode() if ended else f"no end within {SECONDS} s"


def patch_mutant_function(mutant: Mutant) -> None:
    """Give the loaded function the code with the fault: whoever has imported it has the fault as well."""
    path = str(ROOT / mutant.file)
    codes: list[CodeType] = [compile(mutant.text, path, "exec")]
    for code in codes:
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    [new] = [code for code in codes if code.co_qualname == mutant.function]
    for old in gc.get_objects():
        if isinstance(old, FunctionType) and (old.__code__.co_filename, old.__code__.co_qualname) == (
            path,
            mutant.function,
        ):
            old.__code__ = new


def run_test_item(item: pytest.Item, following: pytest.Item | None) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def try_in_tree_copy(wanted: list[Mutant], everything: bool) -> dict[Mutant, str]:
    """What kills each of these mutants, with a server and on both databases."""
    killers: dict[Mutant, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = TreeCopy(Path(folder))
        for mutant in wanted:
            began, original = monotonic(), (ROOT / mutant.file).read_text()
            copy.write(mutant.file, mutant.text)
            several = stages_of_test_files(mutant, everything)
            killer = killers[mutant] = next(filter(None, (copy.run_until_failure(files) for files in several)), "")
            copy.write(mutant.file, original)
            print(f"{'killed' if killer else 'SURVIVED'} {mutant} ({monotonic() - began:.0f} s) {killer}", flush=True)
    return killers


def main() -> int:
    wish = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wish.add_argument("--number", type=int, default=200, help="of mutants, over all layers")
    wish.add_argument("--seed", type=int, default=1, help="which ones")
    wish.add_argument("--layers", nargs="+", choices=LAYERS, default=LAYERS, help="where")
    wish.add_argument("--functions", action="store_true", help="only faults inside of functions")
    wish.add_argument("--all", action="store_true", help="survivors meet every test of their layer and family")
    told = wish.parse_args()
    wanted = choose_mutants(told.number, told.layers, random.Random(told.seed), told.functions)
    quick = MutantTrialPlugin([mutant for mutant in wanted if mutant.function])
    pytest.main(["-q", "-s", "-n", "0", "-p", "no:cacheprovider", "--no-header"], plugins=[quick])
    killers = quick.killers
    rest = [mutant for mutant in wanted if not (killers.get(mutant) or (mutant.function and not told.all))]
    killers |= try_in_tree_copy(rest, told.all)
    print("\n| layer | mutants | killed | survived |\n|---|---|---|---|")
    for layer in told.layers:
        ends = [bool(killer) for mutant, killer in killers.items() if mutant.layer == layer]
        print(f"| {layer} | {len(ends)} | {ends.count(True)} | {ends.count(False)} |")
    for mutant, killer in killers.items():
        if not killer:
            print(f"survived: {mutant}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
