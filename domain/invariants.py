"""What must be true of everything that is kept, whatever happened: one function for each promise.

They get plain facts and return what is wrong. `starter verify` brings them the facts of a live system, the tests those
of systems that were killed, cut off and lied to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from domain.machine import NONE, Actor, Row, StateTable
from domain.model import Finding
from domain.paths import ancestors

IGNORED = "ignored: "
HEAL = "heal"


@dataclass(frozen=True, slots=True)
class ActionFacts:
    """One action that was admitted, as it is kept. `first` and `last` are its lines in the history of its object."""

    epoch: int
    path: str
    action: str
    run: str
    ended: bool
    has_outcome: bool
    requested_by: str = ""
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an object's history."""

    seq: int
    path: str
    actor: str
    action: str
    source: str
    to: str
    epoch: int
    message: str = ""


@dataclass(frozen=True)
class Kept:
    """Everything at or below a path that the promises are about, read in one transaction."""

    actions: list[ActionFacts]
    findings: list[Finding]
    objects: int
    lines: int
    locks: int


def accepted_is_finished(actions: Iterable[ActionFacts], open_runs: set[str]) -> list[Finding]:
    """I1: every admitted request has exactly one outcome, unless it is still being carried out."""
    found = []
    for each in actions:
        if each.ended and not each.has_outcome:
            found.append(Finding("I1", each.path, f"{each.action} has ended without an outcome"))
        if not each.ended and each.run not in open_runs:
            found.append(Finding("I1", each.path, f"{each.action} was admitted, but nobody carries it out: {each.run}"))
    return found


def rest_is_stable(
    under_way: Iterable[tuple[str, str, int]],
    held: Iterable[tuple[str, str]],
    open_epochs: set[int],
    open_runs: set[str],
) -> list[Finding]:
    """I2: what is under way belongs to an open action (path, status, epoch), and so does every lock (path, run)."""
    found = [
        Finding("I2", path, f"is {status}, but no action on it is open")
        for path, status, epoch in under_way
        if epoch not in open_epochs
    ]
    return found + [
        Finding("I2", path, f"is locked by a run that is over: {run}") for path, run in held if run not in open_runs
    ]


def history_is_legal(table: StateTable, path: str, lines: Sequence[Line], status: str) -> list[Finding]:
    """I4: an object's history is one path through its table, ends where the object is, and its epochs only rise."""
    now, came_from, doing, epoch = NONE, NONE, "", 0
    for line in lines:
        if line.message.startswith(IGNORED) or line.action in table.hidden:
            continue  # hidden work moves nothing, and stands in line with what does
        if line.source == NONE and now in table.vacant:
            now = NONE  # the name is used again
        if line.source != now:
            return [Finding("I4", path, f"line {line.seq} leaves {line.source}, but it was {now}")]
        if line.epoch < epoch:
            return [Finding("I4", path, f"line {line.seq} was written by an older action than the one before")]
        if not _legal(table, line, came_from, doing):
            return [Finding("I4", path, f"no row leads from {line.source} to {line.to} ({line.action}, {line.actor})")]
        if line.source not in table.transitional:
            came_from, doing = line.source, line.action
        now, epoch = line.to, line.epoch
    return [] if now == status else [Finding("I4", path, f"is {status}, but its history ends in {now}")]


def _legal(table: StateTable, line: Line, came_from: str, doing: str) -> bool:
    if line.action == HEAL:
        return line.to == table.abandoned(doing, came_from)
    if line.source == line.to:
        return True
    return any(_leads(table, row, line, came_from) for row in table.rows)


def _leads(table: StateTable, row: Row, line: Line, came_from: str) -> bool:
    """Does this row allow the line: into its work, out of it, or by one step?"""
    begins = row.during == line.to and (row.source == line.source or (line.actor == Actor.USER and line.source != NONE))
    ends = bool(row.during) and line.source in (row.during, *table.passing)
    lands = ends and line.to in (row.success(came_from), row.failure(came_from))
    steps = row.during is None and row.source == line.source and row.success(line.source) == line.to
    return begins or lands or steps


def holds_never_overlapped(actions: Sequence[ActionFacts]) -> list[Finding]:
    """I5: an action and one on the same object, or on one above it, were never under way at the same time.

    Told by the order in which the history was written: an action's first line comes with its locks, its last line with
    their release.
    """
    by_path: defaultdict[str, list[ActionFacts]] = defaultdict(list)
    for each in sorted(actions, key=lambda action: action.first):
        by_path[each.path].append(each)
    found = []
    for path, mine in by_path.items():
        for earlier, later in pairwise(mine):
            found += _overlap(earlier, later)
        for above in ancestors(path):
            for other in by_path.get(above, ()):
                found += [
                    finding for each in mine for finding in _overlap(*sorted((each, other), key=lambda a: a.first))
                ]
    return found


def _overlap(earlier: ActionFacts, later: ActionFacts) -> list[Finding]:
    if not earlier.first or not later.first or (earlier.ended and earlier.last < later.first):
        return []
    what = f"{later.action} began while {earlier.action} on {earlier.path} was under way"
    return [Finding("I5", later.path, what)]


def every_change_is_accounted_for(lines: Iterable[Line], actions: Mapping[int, ActionFacts]) -> list[Finding]:
    """I11: behind every change there is an admitted action."""
    return [
        Finding("I11", line.path, f"line {line.seq} ({line.source} to {line.to}) belongs to no action")
        for line in lines
        if line.epoch not in actions and not line.message.startswith(IGNORED)
    ]
