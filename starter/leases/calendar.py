"""A pool's calendar as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from string import ascii_lowercase, ascii_uppercase

from domain.leases.dates import stamp
from domain.leases.messages import CalendarView, HostOccupancy, Occupancy
from domain.paths import short
from starter import terminal
from starter.output import aligned

LETTERS = ascii_uppercase + ascii_lowercase
FREE, SEVERAL, UNNAMED = ".", "+", "#"
WIDEST, NARROWEST = 96, 24


def drawn(view: CalendarView, width: int) -> list[str]:
    """Draws a line per host, a column per span of time, and a legend of the leases."""
    if not view.hosts:
        return [f"pool {view.pool} has no hosts; add one: {terminal.command(f'starter host add {view.pool}/h1')}"]
    longest = max(len(line.host) for line in view.hosts)
    columns = max(NARROWEST, min(WIDEST, width - longest - 10))
    step = (view.end - view.start) / columns
    letters = _letters(view.hosts)
    lines = [(line.host, line.status, _line(line, view.start, step, columns, letters)) for line in view.hosts]
    head = f"pool {view.pool}, from {_day(view.start)} to {_day(view.end)}, a column is {_span(step)}"
    return [head, *aligned([("HOST", "STATUS", _ruler(view, columns)), *lines]), *_legend(view.hosts, letters)]


def _letters(hosts: Sequence[HostOccupancy]) -> dict[str, str]:
    """Assigns a letter to each lease, in the order of their starts."""
    stretches = sorted((each for line in hosts for each in line.stretches), key=lambda each: (each.start, each.lease))
    leases = list(dict.fromkeys(each.lease for each in stretches))
    return {lease: LETTERS[n] if n < len(LETTERS) else UNNAMED for n, lease in enumerate(leases)}


def _line(line: HostOccupancy, start: datetime, step: timedelta, columns: int, letters: dict[str, str]) -> str:
    return "".join(_cell(line.stretches, start + n * step, start + (n + 1) * step, letters) for n in range(columns))


def _cell(stretches: Sequence[Occupancy], since: datetime, until: datetime, letters: dict[str, str]) -> str:
    here = dict.fromkeys(letters[each.lease] for each in stretches if each.start < until and each.end > since)
    return FREE if not here else next(iter(here)) if len(here) == 1 else SEVERAL


def _ruler(view: CalendarView, columns: int) -> str:
    """Returns the time axis: where each quarter begins."""
    length = view.end - view.start
    form = "%H:%M:%S" if length < timedelta(hours=1) else "%m-%d %H:%M"
    marks = [f"|{view.start + n * length / 4:{form}}" for n in range(4)]
    return "".join(mark[: columns // 4].ljust(columns // 4) for mark in marks).rstrip()


def _legend(hosts: Sequence[HostOccupancy], letters: dict[str, str]) -> list[str]:
    lines = []
    for lease, letter in letters.items():
        mine = [each for line in hosts for each in line.stretches if each.lease == lease]
        start, end = min(each.start for each in mine), max(each.end for each in mine)
        lines.append((letter, short(lease), f"{stamp(start)} to {stamp(end)}"))
    told = [f"{FREE} free  {SEVERAL} several within one column"]
    return ["", *aligned(lines), *told] if lines else ["", "nothing is booked"]


def _day(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _span(step: timedelta) -> str:
    minutes = step.total_seconds() / 60
    if minutes < 2:
        return f"{minutes * 60:.1f} s"
    if minutes >= 2 * 24 * 60:
        return f"{minutes / 24 / 60:.1f} d"
    return f"{minutes / 60:.1f} h" if minutes >= 120 else f"{minutes:.1f} min"
