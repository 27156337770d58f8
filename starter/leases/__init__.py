"""The leases family's commands: holdings, events, and a pool's calendar."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from domain import registry
from domain.errors import format_count
from domain.leases import names
from domain.leases.messages import CalendarQuery, CalendarView, LeasesView, LeaseView, ReservationView
from domain.leases.tables import HostStatus
from domain.model import ObjectView, ReadQuery
from domain.paths import name_of, short_path
from starter import terminal
from starter.errors import ExitCode
from starter.extensions import CliExtension
from starter.flags import OutputOption, WatchOption
from starter.kinds import LimitOption, list_command, view_command
from starter.leases import metal
from starter.leases.calendar import draw_calendar
from starter.leases.dates import add_zones_to_spec, attach_local_zone, format_local_date
from starter.leases.demo import demo
from starter.naming import prefix_to_list
from starter.output import Output, Sheet, print_sheet
from starter.session import open_client
from starter.watch import run_once_or_watch

if TYPE_CHECKING:
    from client.actions import ActionClient

SCOPE = ("project", "lease")
PAGE_SIZE = 100

Pool = Annotated[str, Parameter(help="The pool of hosts.")]
StartOption = Annotated[str, Parameter(name="--start", help="now, +2h, tomorrow 09:00, 2026-12-01 09:00 or ISO 8601.")]
EndOption = Annotated[str, Parameter(name="--end", help="As --start. A week if not given.")]


async def _print_lease(path: str, output: Output) -> ExitCode:
    lease = await _read_lease(path)
    if output == "table":
        for line in _format_lease_lines(lease):
            terminal.print_data(line)
        terminal.print_data("")
    headings = ("RESERVATION", "STATUS", "TYPE", "HOLDS", "FLAGS", "ERROR")
    lines = [
        (
            reservation.id,
            reservation.status,
            reservation.resource_type,
            _describe_holdings(reservation.hosts, reservation.mci),
            _describe_reservation_flags(reservation),
            reservation.error,
        )
        for reservation in lease.reservations
    ]
    print_sheet(Sheet(lease.model_dump(mode="json"), headings, lines, [lease.path]), output)
    return ExitCode.DONE


async def _print_events(path: str, output: Output) -> ExitCode:
    lease = await _read_lease(path)
    lines = [(event.name, event.status, format_local_date(event.due), event.error) for event in lease.events]
    data = [event.model_dump(mode="json") for event in lease.events]
    paths = [names.event_path(lease.path, event.name) for event in lease.events]
    print_sheet(Sheet(data, ("EVENT", "STATUS", "DUE", "ERROR"), lines, paths), output)
    return ExitCode.DONE


async def _print_leases(where: str, limit: int, output: Output) -> ExitCode:
    found = await _read_leases(where, limit)
    headings = ("LEASE", "NAME", "STATUS", "START", "END", "HOLDS", "FLAGS")
    lines = [
        (
            short_path(view.path),
            view.name,
            view.status,
            format_local_date(view.start),
            format_local_date(view.end),
            _describe_reservations(view),
            _describe_degraded(view),
        )
        for view in found
    ]
    data = [view.model_dump(mode="json") for view in found]
    print_sheet(Sheet(data, headings, lines, [view.path for view in found]), output)
    return ExitCode.DONE


async def calendar(
    *,
    pool: Pool = "main",
    start: StartOption = "",
    end: EndOption = "",
    limit: LimitOption = 200,
    watch: WatchOption = False,
    output: OutputOption = "table",
) -> ExitCode:
    """Who holds which host when, drawn: a line for each host, a letter for each lease.

    Example: starter lease calendar --pool main --end +2d
    """
    start, end = attach_local_zone(start, "start"), attach_local_zone(end, "end")
    query = CalendarQuery(pool=pool, start=start, end=end, limit=max(1, min(limit, 2_000)))
    return await run_once_or_watch(watch, lambda: _print_calendar(query, output))


async def _print_calendar(query: CalendarQuery, output: Output) -> ExitCode:
    async with open_client() as client:
        view = await client.run_query(names.READ_CALENDAR, query, CalendarView)
    if output != "table":
        paths = [f"pool:{view.pool}:host:{line.host}" for line in view.hosts]
        print_sheet(Sheet(view.model_dump(mode="json"), (), [], paths), output)
        return ExitCode.DONE
    for line in draw_calendar(view, shutil.get_terminal_size((100, 24)).columns):
        terminal.print_data(line)
    if view.left_out:
        terminal.print_message(f"and {format_count(view.left_out, 'more host')}: raise --limit")
    return ExitCode.DONE


async def _read_lease(path: str) -> LeaseView:
    async with open_client() as client:
        return await client.run_query(names.READ_LEASE, ReadQuery(path=path), LeaseView)


async def lease_remarks(client: ActionClient, view: ObjectView) -> list[tuple[str, str]]:
    """Returns a lease's term, what it holds, and what is missing."""
    lease = await client.run_query(names.READ_LEASE, ReadQuery(path=view.path), LeaseView)
    told = [("term", f"from {format_local_date(lease.start)} to {format_local_date(lease.end)}, pool {lease.pool}")]
    for reservation in lease.reservations:
        holdings = _describe_holdings(reservation.hosts, reservation.mci) or "nothing"
        flags = _describe_reservation_flags(reservation)
        told.append(("holds", f"{holdings}, reservation {reservation.id}" + (f": {flags}" if flags else "")))
    if short := [reservation for reservation in lease.reservations if reservation.missing_resources]:
        hosts = [host async for host in client.iterate_objects("host", f"pool:{lease.pool}")]
        told += [("missing", _describe_missing_hosts(reservation)) for reservation in short]
        told.append(("what helps", _suggest_hosts(lease.pool, hosts)))
    return told


def _describe_missing_hosts(reservation: ReservationView) -> str:
    have = sum(reservation.hosts.values())
    what = "host" if reservation.resource_type == "physical:host" else "instance"
    return (
        f"reservation {reservation.id} has {have} of {format_count(reservation.max, what)}: "
        "a host failed, and the pool has no other that is free for the whole term"
    )


def _suggest_hosts(pool: str, hosts: Sequence[ObjectView]) -> str:
    """Returns how the lease gets a host: a failed one that works again, or a new one."""
    names_taken = {name_of(host.path) for host in hosts}
    new = next(name for number in count(len(hosts) + 1) if (name := f"h{number}") not in names_taken)
    told = f"it gets the first host that is there; add one: starter host add {pool}/{new}"
    down = [host for host in hosts if host.status == HostStatus.DOWN]
    return f"{told}; or, once it works: starter host recover {short_path(down[0].path)}" if down else told


async def _read_leases(where: str, limit: int) -> list[LeaseView]:
    found: list[LeaseView] = []
    below = prefix_to_list(where, registry.find_kind("lease"))
    async with open_client() as client:
        while len(found) < limit:
            query = ReadQuery(
                path=below, after=found[-1].path if found else "", limit=min(PAGE_SIZE, limit - len(found))
            )
            page = (await client.run_query(names.READ_LEASES, query, LeasesView)).leases
            found += page
            if len(page) < query.limit:
                break
        else:
            terminal.print_message(f"cut at {limit}: there may be more; raise --limit or narrow --prefix")
    return found


def _format_lease_lines(lease: LeaseView) -> list[str]:
    named = f" ({lease.name})" if lease.name != name_of(lease.path) else ""
    lines = [
        f"{short_path(lease.path)}{named}  {lease.status}{'  degraded' if lease.degraded else ''}",
        f"from {format_local_date(lease.start)} to {format_local_date(lease.end)}, pool {lease.pool}",
    ]
    return [*lines, f"error: {lease.error}"] if lease.error else lines


def _describe_holdings(hosts: dict[str, int], mci: str) -> str:
    return ", ".join(host if units == 1 else f"{host} x{units}" for host, units in hosts.items()) or mci


def _describe_reservation_flags(each: object) -> str:
    words = ("missing_resources", "resources_changed")
    return ", ".join(word for word in words if getattr(each, word))


def _describe_reservations(lease: LeaseView) -> str:
    return "; ".join(
        filter(None, (_describe_holdings(reservation.hosts, reservation.mci) for reservation in lease.reservations))
    )


def _describe_degraded(lease: LeaseView) -> str:
    flags = dict.fromkeys(
        flag
        for reservation in lease.reservations
        for flag in _describe_reservation_flags(reservation).split(", ")
        if flag
    )
    return ", ".join(["degraded", *flags]) if lease.degraded else ""


def _extend_app(app: App) -> None:
    lease = app["lease"]
    del lease["status"], lease["list"]
    what = "One lease: its dates, what it holds, and whether anything of that is missing."
    for word in ("show", "status"):
        lease.command(view_command(SCOPE, _print_lease, what, f"lease {word} p1/demo"), name=word)
    what = "The events of a lease: start, announcement of the end, and end, with time and status."
    lease.command(view_command(SCOPE, _print_events, what, "lease events p1/demo"), name="events")
    lease.command(calendar)
    what = "Every lease there is, with its dates."
    lease.command(list_command(_print_leases, what, "lease list --prefix p1"), name="list")


EXTENSION = CliExtension(
    extend=_extend_app,
    own_status=("lease",),
    remarks={"lease": lease_remarks},
    demo=demo,
    more_demos={"metal": metal.demo},
    complete_spec={"lease": add_zones_to_spec},
    examples={"project": "p1", "lease": "demo", "pool": "main", "host": "h1", "end": "+2h", "event": "end_lease"},
)
