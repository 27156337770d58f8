"""Commands that read: get, status, list, history, locks. Every read goes through Temporal to a worker."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

from domain import registry, wire
from domain.errors import Category, Refused
from domain.locks import LocksView
from domain.model import ObjectView, Query
from domain.paths import name_of, short
from domain.statetable import NONE
from starter import terminal
from starter.errors import Exit
from starter.extensions import Document
from starter.naming import possible_paths, prefix
from starter.output import Output, Sheet, aligned, as_yaml, show, when
from starter.session import session

if TYPE_CHECKING:
    from client.actions import ActionClient

HEADINGS = ("NAME", "STATUS", "TARGET", "PLACE", "CHANGED", "ERROR")


async def locate(text: str) -> str:
    """Resolves a name to a path. If its short form fits several kinds, the one that exists wins."""
    paths = possible_paths(text)
    if len(paths) == 1:
        return paths[0]
    async with session() as asking:
        there = [path for path in paths if await _exists(asking, path)]
    if len(there) == 1:
        return there[0]
    what = "may mean several objects" if there else "is no object"
    raise Refused(
        Category.INVALID if there else Category.NOT_FOUND,
        f"{text} {what}: {', '.join(there or paths)}",
        f"write a whole path, such as {(there or paths)[0]}",
    )


async def _exists(asking: ActionClient, path: str) -> bool:
    try:
        await _view(asking, path)
    except Refused as refused:
        if refused.category is Category.NOT_FOUND:
            return False
        raise
    return True


async def get(path: str, output: Output) -> Exit:
    """Prints everything stored about one object."""
    async with session() as asking:
        view = await _view(asking, path)
    if output != "table":
        show(_sheet([view], path, as_data(view)), output)
        return Exit.DONE
    facts = view.model_dump(mode="json", exclude={"members", "counts", "spec", "info"})
    for line in aligned([(name.replace("_", " "), str(value)) for name, value in facts.items()]):
        terminal.out(line)
    for name, part in (("spec", view.spec), ("info", view.info)):
        if part:
            terminal.out(f"{name}\n{indent(terminal.clean(as_yaml(part)), '  ')}")
    return Exit.DONE


async def status(kind: registry.Kind, path: str, output: Output, document: Document | None = None) -> Exit:
    """Prints an object and its members, as the family's document or as a table."""
    async with session() as asking:
        view = await _view(asking, path)
        members = [each async for each in asking.everything(kind.member, path)] if kind.member else []
    data = document(view, members) if document else view.model_dump(mode="json")
    if output == "table" and kind.member:
        terminal.out(terminal.clean(_headline(view)))
        terminal.out("")
    show(_sheet(members if kind.member else [view], path, data), output)
    return Exit.DONE


def _headline(view: ObjectView) -> str:
    doing = registry.kind(view.kind).target_action(view.target_action)
    going = f"  {doing} to {view.target_status}" if doing != NONE else ""
    return f"{short(view.path)}  {view.status}{going}" + (f"  ({view.error})" if view.error else "")


async def list_objects(kind: registry.Kind, where: str, limit: int, output: Output) -> Exit:
    """Lists objects of a kind by path. It says so if there are more than the limit."""
    found: list[ObjectView] = []
    async with session() as asking:
        async for view in asking.everything(kind.name, prefix(where, kind)):
            if len(found) == limit:
                terminal.say(f"cut at {limit}: there are more; raise --limit or narrow --prefix")
                break
            found.append(view)
    data = [as_data(view) for view in found]
    lines = [_line(view, short(view.path)) for view in found]
    show(Sheet(data, HEADINGS, lines, [view.path for view in found]), output)
    return Exit.DONE


async def history(path: str, limit: int, output: Output) -> Exit:
    """Prints an object's history, oldest first."""
    async with session() as asking:
        lines = await asking.history(path, limit)
        if not lines:
            await _view(asking, path)  # not found is not the same as nothing happened
    headings = ("WHEN", "ACTOR", "ACTION", "FROM", "TO", "BY", "MESSAGE")
    cells = [
        (when(line.at), line.actor, line.action, line.source, line.to, line.requested_by, line.message or line.reason)
        for line in lines
    ]
    show(Sheet([line.model_dump(mode="json") for line in lines], headings, cells, [path]), output)
    return Exit.DONE


async def locks(path: str, output: Output) -> Exit:
    """Prints the locks at or below a path, or all of them."""
    async with session() as asking:
        held = (await asking.read(wire.READ_LOCKS, Query(path=path), LocksView)).locks
    cells = [(lock.path, lock.mode, lock.action, lock.owner, when(lock.since)) for lock in held]
    data, names = [lock.model_dump(mode="json") for lock in held], [lock.path for lock in held]
    show(Sheet(data, ("PATH", "MODE", "ACTION", "OWNER", "SINCE"), cells, names, "nothing is locked"), output)
    return Exit.DONE


def as_data(view: ObjectView) -> dict[str, Any]:
    """Returns an object as JSON data."""
    shown = {"target_action": registry.kind(view.kind).target_action(view.target_action)}
    return view.model_dump(mode="json", exclude={"members"}) | shown


async def _view(asking: ActionClient, path: str) -> ObjectView:
    return await asking.get(path)


def _sheet(views: Sequence[ObjectView], path: str, data: Any) -> Sheet:
    return Sheet(data, HEADINGS, [_line(view, name_of(view.path)) for view in views], [path])


def _line(view: ObjectView, name: str) -> tuple[str, ...]:
    known = f"{view.status} (stale)" if "stale" in view.info else view.status  # the last survey got no answer
    target = "" if view.target_action == NONE else registry.kind(view.kind).target_action(view.target_action)
    return (name, known, target, _place(view), when(view.changed_at), view.error)


def _place(view: ObjectView) -> str:
    """Returns the cloud and region of a VM, or the node of a machine."""
    return view.placement or str(view.info.get(registry.kind(view.kind).place) or "")
