"""A pool's calendar as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from string import ascii_lowercase, ascii_uppercase

from domain.leases.dates import format_date
from domain.leases.messages import CalendarView, HostOccupancy, Occupancy
from domain.paths import short_path
from starter import terminal
from starter.output import align_columns

LETTERS = ascii_uppercase + ascii_lowercase
FREE_SIGN, SEVERAL_SIGN, UNNAMED_SIGN = ".", "+", "#"
MAX_COLUMNS, MIN_COLUMNS = 96, 24


def draw_calendar(view: CalendarView, width: int) -> list[str]:
    """Draws a line per host, a column per span of time, and a legend of the leases."""
    if not view.hosts:
        return [f"pool {view.pool} has no hosts; add one: {terminal.as_typed(f'starter host add {view.pool}/h1')}"]
    longest = max(len(line.host) for line in view.hosts)
    columns = max(MIN_COLUMNS, min(MAX_COLUMNS, width - longest - 10))
    step = (view.end - view.start) / columns
    letters = _letters_of_leases(view.hosts)
    lines = [(line.host, line.status, _host_line(line, view.start, step, columns, letters)) for line in view.hosts]
    head = (
        f"pool {view.pool}, from {_format_day(view.start)} to {_format_day(view.end)}, a column is {_format_step(step)}"
    )
    return [
        head,
        *align_columns([("HOST", "STATUS", _ruler_line(view, columns)), *lines]),
        *_legend_lines(view.hosts, letters),
    ]


def _letters_of_leases(hosts: Sequence[HostOccupancy]) -> dict[str, str]:
    """Assigns a letter to each lease, in the order of their starts."""
    stretches = sorted(
        (stretche for line in hosts for stretche in line.stretches),
        key=lambda occupancy: (occupancy.start, occupancy.lease),
    )
    leases = list(dict.fromkeys(stretche.lease for stretche in stretches))
    return {lease: LETTERS[n] if n < len(LETTERS) else UNNAMED_SIGN for n, lease in enumerate(leases)}


def _host_line(line: HostOccupancy, start: datetime, step: timedelta, columns: int, letters: dict[str, str]) -> str:
    return "".join(
        _cell_sign(line.stretches, start + n * step, start + (n + 1) * step, letters) for n in range(columns)
    )


def _cell_sign(stretches: Sequence[Occupancy], since: datetime, until: datetime, letters: dict[str, str]) -> str:
    here = dict.fromkeys(
        letters[stretche.lease] for stretche in stretches if stretche.start < until and stretche.end > since
    )
    return FREE_SIGN if not here else next(iter(here)) if len(here) == 1 else SEVERAL_SIGN


def _ruler_line(view: CalendarView, columns: int) -> str:
    """Returns the time axis: where each quarter begins."""
    length = view.end - view.start
    form = "%H:%M:%S" if length < timedelta(hours=1) else "%m-%d %H:%M"
    marks = [f"|{view.start + n * length / 4:{form}}" for n in range(4)]
    return "".join(mark[: columns // 4].ljust(columns // 4) for mark in marks).rstrip()


def _legend_lines(hosts: Sequence[HostOccupancy], letters: dict[str, str]) -> list[str]:
    lines = []
    for lease, letter in letters.items():
        mine = [stretche for line in hosts for stretche in line.stretches if stretche.lease == lease]
        start, end = min(occupancy.start for occupancy in mine), max(occupancy.end for occupancy in mine)
        lines.append((letter, short_path(lease), f"{format_date(start)} to {format_date(end)}"))
    told = [f"{FREE_SIGN} free  {SEVERAL_SIGN} several within one column"]
    return ["", *align_columns(lines), *told] if lines else ["", "nothing is booked"]


def _format_day(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _format_step(step: timedelta) -> str:
    minutes = step.total_seconds() / 60
    if minutes < 2:
        return f"{minutes * 60:.1f} s"
    if minutes >= 2 * 24 * 60:
        return f"{minutes / 24 / 60:.1f} d"
    return f"{minutes / 60:.1f} h" if minutes >= 120 else f"{minutes:.1f} min"
