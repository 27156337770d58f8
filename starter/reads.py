"""Commands that read: get, status, list, history, locks. The gateway of `starter up` answers, or else a worker."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

from domain import registry, wire
from domain.errors import Category, Refused
from domain.locks import LocksView
from domain.model import ObjectView, ReadQuery
from domain.paths import name_of, short_path
from domain.statetable import NO_STATUS, NONE
from starter import terminal
from starter.errors import ExitCode
from starter.extensions import extension_of_kind
from starter.naming import possible_paths, prefix_to_list
from starter.output import (
    Output,
    Sheet,
    StatusPage,
    align_columns,
    format_time,
    format_yaml,
    null_absent_statuses,
    print_sheet,
    print_status_page,
)
from starter.session import open_reader

if TYPE_CHECKING:
    from client.reading import Queries

HEADINGS = ("NAME", "STATUS", "TARGET", "PLACE", "CHANGED", "ERROR")


async def locate_object(text: str) -> str:
    """Resolves a name to a path. If its short form fits several kinds, the one that exists wins, or that existed."""
    paths = possible_paths(text)
    if len(paths) == 1:
        return paths[0]
    async with open_reader() as client:
        there = [path for path in paths if await client.object_exists(path)]
        there = there or [path for path in paths if await client.read_history(path, 1)]
        if len(there) == 1:
            return there[0]
        what = "may mean several objects" if there else "is no object"
        raise Refused(
            Category.INVALID if there else Category.NOT_FOUND,
            f"{text} {what}: {', '.join(there or paths)}",
            f"write a whole path, such as {(there or paths)[0]}",
        )


async def print_object(path: str, output: Output) -> ExitCode:
    """Prints everything stored about one object."""
    async with open_reader() as client:
        view = await client.read_object(path)
    if output != "table":
        print_sheet(_objects_sheet([view], path, object_data(view)), output)
        return ExitCode.DONE
    data = null_absent_statuses(object_data(view))
    facts = {name: value for name, value in data.items() if name not in ("counts", "spec", "info")}
    for line in align_columns(
        [(name.replace("_", " "), "" if value is None else str(value)) for name, value in facts.items()]
    ):
        terminal.print_data(line)
    for name, part in (("spec", view.spec), ("info", view.info)):
        if part:
            terminal.print_data(f"{name}\n{indent(terminal.escape_controls(format_yaml(part)), '  ')}")
    return ExitCode.DONE


async def print_status(path: str, output: Output) -> ExitCode:
    """Prints an object and its members, as the family's document or as a table."""
    async with open_reader() as client:
        page = await read_status_page(client, path)
    print_status_page(page, output)
    return ExitCode.DONE


async def read_status_data(client: Queries, path: str) -> dict[str, Any]:
    """Reads a status in the gateway of `starter up`, for a command that only prints it."""
    return (await read_status_page(client, path)).to_json_data()


async def read_status_page(client: Queries, path: str) -> StatusPage:
    """Reads an object and its members."""
    kind = registry.kind_at(path)
    view = await client.read_object(path)
    members = [view async for view in client.iterate_objects(kind.member, path)] if kind.member else []
    document = extension_of_kind(kind.name).documents.get(kind.name)  # None: as every object
    data = document(view, members) if document else view.model_dump(mode="json")
    headline = _headline_of_view(view) if kind.member else ""
    return StatusPage(headline, _objects_sheet(members if kind.member else [view], path, data))


def _headline_of_view(view: ObjectView) -> str:
    doing = registry.find_kind(view.kind).format_target_action(view.target_action)
    going = f"  {doing} to {view.target_status}" if doing != NONE else ""
    return f"{short_path(view.path)}  {view.status}{going}" + (f"  ({view.error})" if view.error else "")


async def print_objects(kind: registry.Kind, where: str, limit: int, output: Output) -> ExitCode:
    """Lists objects of a kind by path. It says so if there are more than the limit."""
    found: list[ObjectView] = []
    async with open_reader() as client:
        async for view in client.iterate_objects(kind.name, prefix_to_list(where, kind)):
            if len(found) == limit:
                terminal.print_message(f"cut at {limit}: there are more; raise --limit or narrow --prefix")
                break
            found.append(view)
    data = [object_data(view) for view in found]
    lines = [_object_row(view, short_path(view.path)) for view in found]
    print_sheet(Sheet(data, HEADINGS, lines, [view.path for view in found]), output)
    return ExitCode.DONE


async def print_history(path: str, limit: int, output: Output) -> ExitCode:
    """Prints an object's history, oldest first."""
    async with open_reader() as client:
        lines = await client.read_history(path, limit)
        if not lines:
            await client.read_object(path)  # not found is not the same as nothing happened
    kind = registry.kind_at(wire.object_path_of(path))
    headings = ("WHEN", "ACTOR", "ACTION", "FROM", "TO", "BY", "MESSAGE")
    cells = [
        (
            format_time(line.at),
            line.actor,
            line.action,
            kind.display_own_status(line.source),
            "" if line.to == NO_STATUS else kind.display_own_status(line.to),
            f"{line.requested_by} for {line.on_behalf_of}" if line.on_behalf_of else line.requested_by,
            line.message or line.reason,
        )
        for line in lines
    ]
    print_sheet(Sheet([line.model_dump(mode="json") for line in lines], headings, cells, [path]), output)
    return ExitCode.DONE


async def print_locks(path: str, output: Output) -> ExitCode:
    """Prints the locks at or below a path, or all of them."""
    async with open_reader() as client:
        held = (await client.run_query(wire.READ_LOCKS, ReadQuery(path=path), LocksView)).locks
    cells = [(lock.path, lock.mode, lock.action, lock.owner, format_time(lock.since)) for lock in held]
    data, names = [lock.model_dump(mode="json") for lock in held], [lock.path for lock in held]
    print_sheet(Sheet(data, ("PATH", "MODE", "ACTION", "OWNER", "SINCE"), cells, names, "nothing is locked"), output)
    return ExitCode.DONE


def object_data(view: ObjectView) -> dict[str, Any]:
    """Returns an object as JSON data."""
    kind = registry.find_kind(view.kind)
    shown = {
        "target_action": kind.format_target_action(view.target_action),
        "phase": kind.display_own_status(view.phase),
        "previous_status": kind.display_own_status(view.previous_status),
    }
    return view.model_dump(mode="json", exclude={"members"}) | shown


def _objects_sheet(views: Sequence[ObjectView], path: str, data: Any) -> Sheet:
    return Sheet(data, HEADINGS, [_object_row(view, name_of(view.path)) for view in views], [path])


def _object_row(view: ObjectView, name: str) -> tuple[str, ...]:
    known = f"{view.status} (stale)" if "stale" in view.info else view.status  # the last survey got no answer
    target = (
        "" if view.target_action == NONE else registry.find_kind(view.kind).format_target_action(view.target_action)
    )
    return (name, known, target, _place_of_view(view), format_time(view.changed_at), view.error)


def _place_of_view(view: ObjectView) -> str:
    """Returns the cloud and region of a VM, or the node of a machine, and whether that is only simulated."""
    place = view.placement or str(view.info.get(registry.find_kind(view.kind).place_key) or "")
    return f"{place}@{wire.SIMULATED}".lstrip("@") if view.simulated else place
