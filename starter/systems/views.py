"""Views of a system: its services, its deploys, its definition, its tree with the locks on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from domain import wire
from domain.errors import Category, Refused, format_count
from domain.locks import LockMode, LocksView
from domain.model import ObjectView, ReadQuery
from domain.paths import kind_of, name_of, parent_of, short_path
from domain.services.rollout import ServiceFacts
from domain.systems.ports import READ_SERVICE_LOGS, READ_SERVICES, ServiceLogsView, ServicesView, backend_queue
from domain.systems.rules import subtree_definition, tree_path
from domain.systems.specs import is_service
from starter import terminal
from starter.errors import ExitCode
from starter.output import Output, Sheet, format_time, print_sheet
from starter.session import open_client

if TYPE_CHECKING:
    from client.actions import ActionClient

MAX_PARTS = 5_000


@dataclass(frozen=True)
class SystemTree:
    """A system or part with everything below it."""

    top: ObjectView
    parts: list[ObjectView]
    facts: Mapping[str, ServiceFacts]

    def services(self) -> list[ObjectView]:
        return [view for view in (self.top, *self.parts) if is_service(view.spec)]

    @cached_property
    def parts_by_parent(self) -> Mapping[str, list[ObjectView]]:
        """The parts of each node, by path."""
        found: defaultdict[str, list[ObjectView]] = defaultdict(list)
        for view in self.parts:
            found[parent_of(view.path) or ""].append(view)
        return found

    def describe_instances(self, path: str) -> str:
        facts = self.facts.get(path)
        return facts.describe_counts() if facts else ""


async def print_status(path: str, output: Output) -> ExitCode:
    """Prints the state of a system and of its services."""
    async with open_client() as client:
        tree = await _read_tree(client, path)
    told = {name: getattr(tree.top, name) for name in ("status", "target_action", "error")}
    data = {"path": path, **told, "services": [_service_document(tree, view) for view in tree.services()]}
    if output == "table":
        terminal.print_data(f"{short_path(path)}  {tree.top.status}\n")
    lines = [
        (
            tree_path(view.path),
            view.status,
            tree.describe_instances(view.path),
            format_time(view.changed_at),
            _error_of_part(tree, view),
        )
        for view in tree.services()
    ]
    print_sheet(Sheet(data, ("SERVICE", "STATE", "HEALTHY", "CHANGED", "ERROR"), lines, [path]), output)
    return ExitCode.DONE


async def print_deploys(path: str, output: Output) -> ExitCode:
    """Prints the deploys and teardowns of a system, oldest first, with their stages."""
    async with open_client() as client:
        await client.read_object(path)  # raises if the system does not exist
        found = [view for kind in ("deploy", "teardown") async for view in client.iterate_objects(kind, path)]
    found.sort(key=lambda view: view.epoch)
    cells = [
        (name_of(view.path), kind_of(view.path), tree_path(view.path), view.status, view.spec.get("by", ""),
         format_time(view.created_at), view.error or view.spec.get("reason", ""))
        for view in found
    ]  # fmt: skip
    headings = ("NAME", "ACTION", "PATH", "STATE", "BY", "BEGAN", "MESSAGE")
    data = [dict(zip((heading.lower() for heading in headings), line, strict=True)) for line in cells]
    print_sheet(Sheet(data, headings, cells, [view.path for view in found]), output)
    return ExitCode.DONE


async def print_definition(path: str, output: Output) -> ExitCode:
    """Prints the definition at a path, as it could be deployed again."""
    async with open_client() as client:
        tree = await _read_tree(client, path)
    print_sheet(Sheet(_definition_of_tree(tree), ("PATH",), [(tree_path(path),)], [path]), output)
    return ExitCode.DONE


async def read_current_definition(client: ActionClient, path: str) -> dict[str, Any]:
    """Reads the definition that is deployed at a path; Refused if there is none."""
    return _definition_of_tree(await _read_tree(client, path))


async def print_tree_with_locks(path: str) -> ExitCode:
    """Prints the tree with states and locks."""
    async with open_client() as client:
        tree = await _read_tree(client, path)
        held = (await client.run_query(wire.READ_LOCKS, ReadQuery(path=path), LocksView)).locks
        names = {view.epoch: name_of(view.path) for kind in ("deploy", "teardown")
                 async for view in client.iterate_objects(kind, path)}  # fmt: skip
    epochs = {view.path: view.epoch for view in (tree.top, *tree.parts)}
    locks: defaultdict[str, list[str]] = defaultdict(list)
    for lock in held:
        if lock.mode == LockMode.X:
            locks[lock.path].append(f"{LockMode.X} {lock.action} {names.get(epochs.get(lock.path, 0), '')}".rstrip())
    for locked, number in Counter(lock.path for lock in held if lock.mode == LockMode.IX).items():
        locks[locked].append(f"{LockMode.IX} for {number} below")
    for line in _draw_node(tree, tree.top, locks, "", ""):
        terminal.print_data(line)
    return ExitCode.DONE


async def _read_tree(client: ActionClient, path: str) -> SystemTree:
    top = await client.read_object(path)
    parts = [view async for view in client.iterate_objects("part", path) if view.path != path]
    seen = await client.run_query(READ_SERVICES, ReadQuery(path=path, limit=MAX_PARTS), ServicesView)
    return SystemTree(top, parts, {service.path: service for service in seen.services})


def _service_document(tree: SystemTree, view: ObjectView) -> dict[str, Any]:
    facts = tree.facts.get(view.path)
    counts = ("wanted", "alive", "healthy", "current", "former")
    counted = {name: getattr(facts, name) for name in counts} if facts else {}
    return {"path": tree_path(view.path), "state": view.status, **counted, "error": _error_of_part(tree, view)}


def _error_of_part(tree: SystemTree, view: ObjectView) -> str:
    facts = tree.facts.get(view.path)
    return facts.message if facts and facts.message and not facts.is_rolled_out() else view.error


def _definition_of_tree(tree: SystemTree) -> dict[str, Any]:
    definition = subtree_definition(tree.top.path, {view.path: view.spec for view in (tree.top, *tree.parts)})
    if definition is None:
        where = short_path(tree.top.path)
        raise Refused(Category.NOT_FOUND, f"nothing is deployed in {where}", "starter system deploy --help")
    return definition


def _draw_node(
    tree: SystemTree, view: ObjectView, locks: Mapping[str, Sequence[str]], lead: str, branch: str
) -> Iterator[str]:
    """Yields a line for the node and, indented, those of its parts."""
    told = [name_of(view.path), view.status, tree.describe_instances(view.path)]
    if held := locks.get(view.path):
        told.append(f"[{', '.join(held)}]")
    yield f"{lead}{branch}{'  '.join(filter(None, told))}"
    inside = lead + {"├── ": "│   ", "└── ": "    "}.get(branch, "")
    parts = tree.parts_by_parent[view.path]
    for part in parts:
        yield from _draw_node(tree, part, locks, inside, "└── " if part is parts[-1] else "├── ")


async def print_logs(system: str, path: str, lines: int, output: Output) -> ExitCode:
    """Prints the last lines of each instance of the services at and below a path."""
    async with open_client() as client:
        backend = str((await client.read_object(system)).spec["backend"])
        await client.read_object(path)  # raises if the part does not exist
        query = ReadQuery(path=path, limit=lines)
        found = await client.run_query(READ_SERVICE_LOGS, query, ServiceLogsView, queue=backend_queue(backend))
    if output != "table":
        data = [{"service": tree_path(log.path), "instance": log.number, "lines": log.lines} for log in found.logs]
        print_sheet(Sheet(data, (), [], [log.path for log in found.logs]), output)
        return ExitCode.DONE
    for log in found.logs:
        terminal.print_data(f"== {tree_path(log.path)} {log.number}")
        for line in log.lines:
            terminal.print_data(terminal.escape_controls(line))
    if not found.logs:
        simulated = "; the simulated backend writes none" if backend == "simulated" else ""
        terminal.print_message(f"no service at {tree_path(path)} has written anything{simulated}")
    if found.more:
        terminal.print_message(f"and {format_count(found.more, 'more instance')}: name a service")
    return ExitCode.DONE
