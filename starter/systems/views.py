"""Views of a system: its services, its deploys, its definition, its tree with the locks on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from domain import wire
from domain.errors import Category, Refused
from domain.locks import LocksView, Mode
from domain.model import ObjectView, Query
from domain.paths import kind_of, name_of, parent_of, short
from domain.systems.ports import READ_SERVICES, ServicesView
from domain.systems.rules import ServiceFacts, tree_path
from domain.systems.specs import is_service, jobs_of
from starter import terminal
from starter.errors import Exit
from starter.output import Output, Sheet, show, when
from starter.session import session

if TYPE_CHECKING:
    from client.actions import ActionClient

MOST = 5_000


@dataclass(frozen=True)
class Tree:
    """A system or part with everything below it."""

    top: ObjectView
    parts: list[ObjectView]
    facts: Mapping[str, ServiceFacts]

    def services(self) -> list[ObjectView]:
        return [view for view in (self.top, *self.parts) if is_service(view.spec)]

    @cached_property
    def below(self) -> Mapping[str, list[ObjectView]]:
        """The parts of each node, by path."""
        found: defaultdict[str, list[ObjectView]] = defaultdict(list)
        for view in self.parts:
            found[parent_of(view.path) or ""].append(view)
        return found

    def instances(self, path: str) -> str:
        facts = self.facts.get(path)
        return f"{facts.healthy}/{facts.wanted}" if facts else ""


async def status(path: str, output: Output) -> Exit:
    """Prints the state of a system and of its services."""
    async with session() as asking:
        tree = await _tree(asking, path)
    told = {name: getattr(tree.top, name) for name in ("status", "target_action", "error")}
    data = {"path": path, **told, "services": [_service(tree, view) for view in tree.services()]}
    if output == "table":
        terminal.out(f"{short(path)}  {tree.top.status}\n")
    lines = [
        (tree_path(view.path), view.status, tree.instances(view.path), when(view.changed_at), _why(tree, view))
        for view in tree.services()
    ]
    show(Sheet(data, ("SERVICE", "STATE", "HEALTHY", "CHANGED", "ERROR"), lines, [path]), output)
    return Exit.DONE


async def deploys(path: str, output: Output) -> Exit:
    """Prints the deploys and teardowns of a system, oldest first, with their stages."""
    async with session() as asking:
        await asking.get(path)  # raises if the system does not exist
        found = [view for kind in ("deploy", "teardown") async for view in asking.everything(kind, path)]
    found.sort(key=lambda view: view.epoch)
    cells = [
        (name_of(view.path), kind_of(view.path), tree_path(view.path), view.status, view.spec.get("by", ""),
         when(view.created_at), view.error or view.spec.get("reason", ""))
        for view in found
    ]  # fmt: skip
    headings = ("NAME", "ACTION", "PATH", "STATE", "BY", "BEGAN", "MESSAGE")
    data = [dict(zip((heading.lower() for heading in headings), line, strict=True)) for line in cells]
    show(Sheet(data, headings, cells, [view.path for view in found]), output)
    return Exit.DONE


async def definition(path: str, output: Output) -> Exit:
    """Prints the definition at a path, as it could be deployed again."""
    async with session() as asking:
        tree = await _tree(asking, path)
    if path != tree.top.path or not (
        tree.parts or is_service(tree.top.spec) or tree.top.spec.keys() & {"parts", "jobs"}
    ):
        raise Refused(Category.NOT_FOUND, f"nothing is deployed in {short(path)}", "starter system deploy --help")
    show(Sheet(_defined(tree, tree.top), ("PATH",), [(tree_path(path),)], [path]), output)
    return Exit.DONE


async def graph(path: str) -> Exit:
    """Prints the tree with states and locks."""
    async with session() as asking:
        tree = await _tree(asking, path)
        held = (await asking.read(wire.READ_LOCKS, Query(path=path), LocksView)).locks
        names = {view.epoch: name_of(view.path) for kind in ("deploy", "teardown")
                 async for view in asking.everything(kind, path)}  # fmt: skip
    epochs = {view.path: view.epoch for view in (tree.top, *tree.parts)}
    locks: defaultdict[str, list[str]] = defaultdict(list)
    for lock in held:
        if lock.mode == Mode.X:
            locks[lock.path].append(f"{Mode.X} {lock.action} {names.get(epochs.get(lock.path, 0), '')}".rstrip())
    for locked, number in Counter(lock.path for lock in held if lock.mode == Mode.IX).items():
        locks[locked].append(f"{Mode.IX} for {number} below")
    for line in _drawn(tree, tree.top, locks, "", ""):
        terminal.out(line)
    return Exit.DONE


async def _tree(asking: ActionClient, path: str) -> Tree:
    top = await asking.get(path)
    parts = [view async for view in asking.everything("part", path) if view.path != path]
    seen = await asking.read(READ_SERVICES, Query(path=path, limit=MOST), ServicesView)
    return Tree(top, parts, {each.path: each for each in seen.services})


def _service(tree: Tree, view: ObjectView) -> dict[str, Any]:
    facts = tree.facts.get(view.path)
    counted = {"wanted": facts.wanted, "alive": facts.alive, "healthy": facts.healthy} if facts else {}
    return {"path": tree_path(view.path), "state": view.status, **counted, "error": _why(tree, view)}


def _why(tree: Tree, view: ObjectView) -> str:
    facts = tree.facts.get(view.path)
    return facts.message if facts and facts.message and not facts.settled() else view.error


def _defined(tree: Tree, view: ObjectView) -> dict[str, Any]:
    """Returns the definition of a node with its parts, in their stored order."""
    if is_service(view.spec):
        return view.spec
    parts = [{"name": name_of(part.path), **_defined(tree, part)} for part in tree.below[view.path]]
    return {"parts": parts, **jobs_of(view.spec)}


def _drawn(tree: Tree, view: ObjectView, locks: Mapping[str, Sequence[str]], lead: str, branch: str) -> Iterator[str]:
    """Yields a line for the node and, indented, those of its parts."""
    told = [name_of(view.path), view.status, tree.instances(view.path)]
    if held := locks.get(view.path):
        told.append(f"[{', '.join(held)}]")
    yield f"{lead}{branch}{'  '.join(filter(None, told))}"
    inside = lead + {"├── ": "│   ", "└── ": "    "}.get(branch, "")
    parts = tree.below[view.path]
    for part in parts:
        yield from _drawn(tree, part, locks, inside, "└── " if part is parts[-1] else "├── ")
