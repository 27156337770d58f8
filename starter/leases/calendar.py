"""A pool's calendar as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from string import ascii_lowercase, ascii_uppercase

from domain.leases.messages import CalendarView, HostOccupancy, Occupancy
from domain.leases.tables import HostStatus
from domain.paths import short_path
from starter import terminal
from starter.leases.dates import format_local_date
from starter.output import align_columns

LETTERS = ascii_uppercase + ascii_lowercase
FREE_SIGN, SEVERAL_SIGN, UNNAMED_SIGN, DOWN_SIGN = ".", "+", "#", "x"
MAX_COLUMNS, MIN_COLUMNS = 96, 24
MARK_WIDTH = 12  # of a date on the time axis; so marks of hours are half days apart
# The lengths that a column may have: people count in these.
_SECOND, _MINUTE, _HOUR, _DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))
ROUND_STEPS = (
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 4, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 28, 56, 112, 224, 448)),
)


def draw_calendar(view: CalendarView, width: int) -> list[str]:
    """Draws a line per host, a column per span of time, and a legend of the leases."""
    if not view.hosts:
        return [
            f"pool {view.pool} has no hosts; add one: {terminal.rewrite_commands(f'starter host add {view.pool}/h1')}"
        ]
    longest = max(len(line.host) for line in view.hosts)
    room = max(MIN_COLUMNS, min(MAX_COLUMNS, width - longest - 10))
    start, end = view.start.astimezone(), view.end.astimezone()
    step = next((step for step in ROUND_STEPS if (end - _round_down(start, step)) / step <= room), (end - start) / room)
    start = _round_down(start, step)
    columns = ceil((end - start) / step)
    letters = _letters_of_leases(view.hosts)
    lines = [(line.host, line.status, _host_line(line, start, step, columns, letters)) for line in view.hosts]
    head = f"pool {view.pool}, from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}, a column is {_format_step(step)}"
    return [
        f"{head}, times are {start:%Z}",
        *align_columns([("HOST", "STATUS", _ruler_line(start, step, columns)), *lines]),
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
    free = FREE_SIGN if line.status == HostStatus.UP else DOWN_SIGN
    return "".join(
        _cell_sign(line.stretches, start + n * step, start + (n + 1) * step, letters) or free for n in range(columns)
    )


def _cell_sign(stretches: Sequence[Occupancy], since: datetime, until: datetime, letters: dict[str, str]) -> str:
    here = dict.fromkeys(
        letters[stretche.lease] for stretche in stretches if stretche.start < until and stretche.end > since
    )
    return SEVERAL_SIGN if len(here) > 1 else next(iter(here), "")


def _ruler_line(start: datetime, step: timedelta, columns: int) -> str:
    """Returns the time axis, with a date every few columns."""
    form = "%H:%M:%S" if step < _MINUTE else "%m-%d %H:%M" if step < _DAY else "%Y-%m-%d"
    gap = MARK_WIDTH * (2 if columns >= 6 * MARK_WIDTH else 1)
    return "".join(f"|{start + n * step:{form}}"[:gap].ljust(gap) for n in range(0, columns, gap))[:columns].rstrip()


def _round_down(at: datetime, step: timedelta) -> datetime:
    """Returns the last full step before a moment, counted from the midnight of its day, or from a Monday."""
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if step >= 7 * _DAY:
        return midnight - timedelta(days=at.weekday())
    return midnight + (at - midnight) // step * step


def _legend_lines(hosts: Sequence[HostOccupancy], letters: dict[str, str]) -> list[str]:
    lines = []
    for lease, letter in letters.items():
        mine = [stretche for line in hosts for stretche in line.stretches if stretche.lease == lease]
        start, end = min(occupancy.start for occupancy in mine), max(occupancy.end for occupancy in mine)
        lines.append((letter, short_path(lease), f"{format_local_date(start)} to {format_local_date(end)}"))
    told = f"{FREE_SIGN} free  {SEVERAL_SIGN} several within one column"
    if any(line.status != HostStatus.UP for line in hosts):
        told += f"  {DOWN_SIGN} the host is not UP: it takes no lease"
    return ["", *align_columns(lines), told] if lines else ["", f"nothing is booked; {told}"]


def _format_step(step: timedelta) -> str:
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if step >= length:
            return f"{step / length:g} {unit}"
    return f"{step.total_seconds():g} s"
