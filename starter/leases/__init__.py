"""The leases family's commands: holdings, events, and a pool's calendar."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from domain import registry
from domain.leases import names
from domain.leases.dates import stamp
from domain.leases.messages import CalendarQuery, CalendarView, LeasesView, LeaseView
from domain.model import ObjectView, Query
from domain.paths import expand, name_of, short
from starter import terminal
from starter.errors import Exit
from starter.extensions import CliExtension
from starter.kinds import DEFAULT_LIMIT, CliCommand, Limit, ObjectArg, Prefix, described
from starter.leases.calendar import drawn
from starter.leases.demo import demo
from starter.naming import prefix
from starter.output import Output, OutputOption, Sheet, show
from starter.session import session
from starter.watching import WatchOption, watching

if TYPE_CHECKING:
    from client.actions import ActionClient

SCOPE = ("project", "lease")
PAGE = 100

Pool = Annotated[str, Parameter(help="The pool of hosts.")]
From = Annotated[str, Parameter(name="--start", help="now, +2h, 2026-12-01 09:00 (UTC) or ISO 8601.")]
To = Annotated[str, Parameter(name="--end", help="As --start. A week if not given.")]


def _showing(word: str) -> CliCommand:
    async def show_lease(target: ObjectArg, /, *, watch: WatchOption = False, output: OutputOption = "table") -> Exit:
        path = expand(target, SCOPE)
        return await watching(watch, lambda: _show(path, output))

    what = "One lease: its dates, what it holds, and whether anything of that is missing."
    return described(show_lease, what, f"lease {word} p1/demo")


async def _show(path: str, output: Output) -> Exit:
    lease = await _lease(path)
    if output == "table":
        for line in _headline(lease):
            terminal.out(line)
        terminal.out("")
    headings = ("RESERVATION", "STATUS", "TYPE", "HOLDS", "FLAGS", "ERROR")
    lines = [
        (each.id, each.status, each.resource_type, _holds(each.hosts, each.mci), _flags(each), each.error)
        for each in lease.reservations
    ]
    show(Sheet(lease.model_dump(mode="json"), headings, lines, [lease.path]), output)
    return Exit.DONE


async def events(target: ObjectArg, /, *, watch: WatchOption = False, output: OutputOption = "table") -> Exit:
    """The events of a lease: start, announcement of the end, and end, with time and status.

    Example: starter lease events p1/demo
    """
    path = expand(target, SCOPE)
    return await watching(watch, lambda: _events(path, output))


async def _events(path: str, output: Output) -> Exit:
    lease = await _lease(path)
    lines = [(each.name, each.status, stamp(each.due), each.error) for each in lease.events]
    data = [each.model_dump(mode="json") for each in lease.events]
    paths = [names.event_path(lease.path, each.name) for each in lease.events]
    show(Sheet(data, ("EVENT", "STATUS", "DUE", "ERROR"), lines, paths), output)
    return Exit.DONE


async def list_leases(
    *, prefix: Prefix = "", limit: Limit = DEFAULT_LIMIT, watch: WatchOption = False, output: OutputOption = "table"
) -> Exit:
    """Every lease there is, with its dates.

    Example: starter lease list --prefix p1
    """
    return await watching(watch, lambda: _list(prefix, limit, output))


async def _list(where: str, limit: int, output: Output) -> Exit:
    found = await _leases(where, limit)
    headings = ("LEASE", "NAME", "STATUS", "START", "END", "HOLDS", "FLAGS")
    lines = [
        (short(each.path), each.name, each.status, stamp(each.start), stamp(each.end), _sum(each), _degraded(each))
        for each in found
    ]
    data = [each.model_dump(mode="json") for each in found]
    show(Sheet(data, headings, lines, [each.path for each in found]), output)
    return Exit.DONE


async def calendar(
    *,
    pool: Pool = "main",
    start: From = "",
    end: To = "",
    limit: Limit = 200,
    watch: WatchOption = False,
    output: OutputOption = "table",
) -> Exit:
    """Who holds which host when, drawn: a line for each host, a letter for each lease.

    Example: starter lease calendar --pool main --end +2d
    """
    query = CalendarQuery(pool=pool, start=start, end=end, limit=max(1, min(limit, 2_000)))
    return await watching(watch, lambda: _calendar(query, output))


async def _calendar(query: CalendarQuery, output: Output) -> Exit:
    async with session() as asking:
        view = await asking.read(names.READ_CALENDAR, query, CalendarView)
    if output != "table":
        paths = [f"pool:{view.pool}:host:{line.host}" for line in view.hosts]
        show(Sheet(view.model_dump(mode="json"), (), [], paths), output)
        return Exit.DONE
    for line in drawn(view, shutil.get_terminal_size((100, 24)).columns):
        terminal.out(line)
    if view.left_out:
        terminal.say(f"{view.left_out} more hosts are not shown: raise --limit")
    return Exit.DONE


async def _lease(path: str) -> LeaseView:
    async with session() as asking:
        return await asking.read(names.READ_LEASE, Query(path=path), LeaseView)


async def remarks(asking: ActionClient, view: ObjectView) -> list[tuple[str, str]]:
    """Returns a lease's term, what it holds, and what is missing."""
    lease = await asking.read(names.READ_LEASE, Query(path=view.path), LeaseView)
    told = [("term", f"from {stamp(lease.start)} to {stamp(lease.end)}, pool {lease.pool}")]
    for each in lease.reservations:
        missing = f": {_flags(each)}" if _flags(each) else ""
        told.append(("holds", f"{_holds(each.hosts, each.mci) or 'nothing'}, reservation {each.id}{missing}"))
    return told


async def _leases(where: str, limit: int) -> list[LeaseView]:
    found: list[LeaseView] = []
    below = prefix(where, registry.kind("lease"))
    async with session() as asking:
        while len(found) < limit:
            query = Query(path=below, after=found[-1].path if found else "", limit=min(PAGE, limit - len(found)))
            page = (await asking.read(names.READ_LEASES, query, LeasesView)).leases
            found += page
            if len(page) < query.limit:
                break
        else:
            terminal.say(f"cut at {limit}: there may be more; raise --limit or narrow --prefix")
    return found


def _headline(lease: LeaseView) -> list[str]:
    named = f" ({lease.name})" if lease.name != name_of(lease.path) else ""
    lines = [
        f"{short(lease.path)}{named}  {lease.status}{'  degraded' if lease.degraded else ''}",
        f"from {stamp(lease.start)} to {stamp(lease.end)}, pool {lease.pool}",
    ]
    return [*lines, f"error: {lease.error}"] if lease.error else lines


def _holds(hosts: dict[str, int], mci: str) -> str:
    return ", ".join(host if units == 1 else f"{host} x{units}" for host, units in hosts.items()) or mci


def _flags(each: object) -> str:
    words = ("missing_resources", "resources_changed")
    return ", ".join(word for word in words if getattr(each, word))


def _sum(lease: LeaseView) -> str:
    return "; ".join(filter(None, (_holds(each.hosts, each.mci) for each in lease.reservations)))


def _degraded(lease: LeaseView) -> str:
    flags = dict.fromkeys(flag for each in lease.reservations for flag in _flags(each).split(", ") if flag)
    return ", ".join(["degraded", *flags]) if lease.degraded else ""


def _extend(app: App) -> None:
    lease = app["lease"]
    del lease["status"]
    for word in ("show", "status"):
        lease.command(_showing(word), name=word)
    lease.command(events)
    lease.command(calendar)
    del lease["list"]
    lease.command(list_leases, name="list")


EXTENSION = CliExtension(
    extend=_extend,
    remarks={"lease": remarks},
    demo=demo,
    examples={"project": "p1", "lease": "demo", "pool": "main", "host": "h1", "end": "+2h", "event": "end_lease"},
)
