"""How much the tests see: small faults are put into the code, one at a time, and the tests should notice each.

    .venv/bin/python -m bench.mutation --number 200 --seed 1

Works in a copy of the tree. Each mutant meets the tests that can see it, the quickest first, until one fails; prints
how many were killed and survived in each layer, and every survivor. Takes most of a minute for each mutant.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.tiers import is_fast
from workers.families import FAMILIES

ROOT = Path(__file__).parents[1]
LAYERS = ("domain", "store", "workflows")
NAMES = [family.name for family in FAMILIES]
SECONDS = 600  # for one stage; a mutant that waits for ever is noticed as well
OPPOSITE: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq(), ast.Lt: ast.GtE(), ast.GtE: ast.Lt(), ast.Gt: ast.LtE(),
    ast.LtE: ast.Gt(), ast.In: ast.NotIn(), ast.NotIn: ast.In(), ast.Is: ast.IsNot(), ast.IsNot: ast.Is(),
}  # fmt: skip
# Tests without a server and a database. What the others begin with is in `stages`.
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
    text: str  # of the whole file, with the fault

    @property
    def layer(self) -> str:
        return self.file.split("/")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {self.what}"


def mutants(file: str, text: str) -> Iterator[Mutant]:
    """Every fault that can be put into a file."""
    for node in ast.walk(ast.parse(text)):
        for kind, changed in faults(node):
            old = ast.get_source_segment(text, node) or ""
            new = f"({ast.unparse(changed)})" if isinstance(changed, ast.expr) else _indented(changed, node)
            new = f"el{new}" if old.startswith("elif") else new
            if isinstance(node, ast.Tuple) and not old.startswith("("):
                continue  # the elements of a subscript
            what = f"{' '.join(old.split())[:60]} → {' '.join(new.split())[:60]}"
            yield Mutant(file, node.lineno, kind, what, _spliced(text, node, new))  # type: ignore[attr-defined]


def faults(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
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


def _indented(statement: ast.AST, place: ast.AST) -> str:
    margin = "\n" + " " * place.col_offset  # type: ignore[attr-defined]
    return ast.unparse(statement).replace("\n", margin)


def _spliced(text: str, node: ast.AST, new: str) -> str:
    lines = text.encode().splitlines(keepends=True)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]  # type: ignore[attr-defined]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])  # type: ignore[attr-defined]
    return (before + new.encode() + after).decode()


def chosen(number: int, layers: list[str], chance: random.Random) -> list[Mutant]:
    """As many of every layer, and in each as many of every kind, as there are."""
    wanted = []
    for layer in layers:
        kinds: defaultdict[str, list[Mutant]] = defaultdict(list)
        for path in sorted((ROOT / layer).rglob("*.py")):
            if "versions" not in path.parts:
                for mutant in mutants(path.relative_to(ROOT).as_posix(), path.read_text()):
                    kinds[mutant.kind].append(mutant)
        for several in kinds.values():
            chance.shuffle(several)
        share = -(-number // len(layers))
        while share and any(kinds.values()):
            for several in filter(None, list(kinds.values())[:share]):
                wanted.append(several.pop())
                share -= 1
    return wanted[:number]


def stages(mutant: Mutant, everything: bool) -> list[list[str]]:
    """The test files that can see a mutant, the quickest first."""
    family = next((name for name in NAMES if name in mutant.file.split("/") or mutant.file.endswith(f"/{name}.py")), "")
    own = sorted(
        ROOT.glob(f"tests/test_{family}/test_*.py") if family and family != "mci" else ROOT.glob("tests/test_mci*.py")
    )
    pure, store = [ROOT / f"tests/{name}.py" for name in PURE], sorted(ROOT.glob("tests/test_store/test_*.py"))
    actions = [ROOT / f"tests/{name}.py" for name in ("test_replay", "test_actions", "test_asking", "test_permits")]
    several = {"domain": [pure, store, own], "store": [store, own], "workflows": [actions, own]}[mutant.layer]
    kept = [[str(file.relative_to(ROOT)) for file in files if everything or is_fast(file)] for files in several]
    return [files for files in kept if files]


class Copy:
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

    def passes(self, files: list[str], loud: bool = False) -> bool:
        """Do these tests pass? If not, and that is no good news, show why."""
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", *files]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(command, cwd=self._folder, stdout=said, stderr=said, start_new_session=True)
            try:
                good = process.wait(SECONDS) == 0
            except subprocess.TimeoutExpired:
                good = False
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait()
            if loud and not good:
                said.seek(0)
                print(said.read().decode(errors="replace")[-4_000:])
            return good


def main() -> int:
    wish = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wish.add_argument("--number", type=int, default=200, help="of mutants, over all layers")
    wish.add_argument("--seed", type=int, default=1, help="which ones")
    wish.add_argument("--layers", nargs="+", choices=LAYERS, default=LAYERS, help="where")
    wish.add_argument("--all", action="store_true", help="with the slow tests too")
    told = wish.parse_args()
    wanted = chosen(told.number, told.layers, random.Random(told.seed))
    killed, survived = Counter[str](), defaultdict[str, list[Mutant]](list)
    sound = set[tuple[str, ...]]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for mutant in wanted:
            began, original, seen = monotonic(), (ROOT / mutant.file).read_text(), ""
            for files in stages(mutant, told.all):
                if tuple(files) not in sound and not copy.passes(files, loud=True):
                    sys.exit("these fail without any fault")
                sound.add(tuple(files))
                copy.write(mutant.file, mutant.text)
                noticed = not copy.passes(files)
                copy.write(mutant.file, original)
                if noticed:
                    seen = files[0]
                    break
            killed[mutant.layer] += bool(seen)
            survived[mutant.layer] += [] if seen else [mutant]
            print(f"{'killed' if seen else 'SURVIVED'} {mutant} ({monotonic() - began:.0f} s)", flush=True)
    print("\n| layer | mutants | killed | survived |\n|---|---|---|---|")
    for layer in told.layers:
        lost = len(survived[layer])
        print(f"| {layer} | {killed[layer] + lost} | {killed[layer]} | {lost} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
