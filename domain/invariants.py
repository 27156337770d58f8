"""What must be true of everything that is kept, whatever happened: one function for each promise.

They get plain facts and return what is wrong. `starter verify` brings them the facts of a live system, the tests those
of systems that were killed, cut off and lied to.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from domain.model import BrokenPromise
from domain.statetable import NONE, Actor, Row, StateTable

IGNORED = "ignored: "
MOST_FINDINGS = 5_000
HEAL = "heal"


@dataclass(slots=True)
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


class AuditLine(NamedTuple):
    """One line of an object's history."""

    seq: int
    path: str
    actor: str
    action: str
    source: str
    to: str
    epoch: int
    message: str = ""


@dataclass
class AuditSnapshot:
    """What the promises are about at or below a path, read over one snapshot; of actions only those that matter."""

    last: int = 0  # the highest epoch at that moment
    open: list[ActionFacts] = field(default_factory=list)  # actions that have not ended, everywhere
    under_way: list[tuple[str, str, int]] = field(default_factory=list)  # path, status, epoch
    held: list[tuple[str, str, str]] = field(default_factory=list)  # locks: path, owner, run
    findings: list[BrokenPromise] = field(default_factory=list)
    more: int = 0  # findings that are not listed
    actions: int = 0
    objects: int = 0
    lines: int = 0

    def note(self, findings: Iterable[BrokenPromise]) -> None:
        """Keep what is wrong; there is a limit to what anybody reads."""
        for each in findings:
            if len(self.findings) < MOST_FINDINGS:
                self.findings.append(each)
            else:
                self.more += 1


def ended_with_an_outcome(actions: Iterable[ActionFacts]) -> list[BrokenPromise]:
    """I1, of actions that have ended: each has an outcome."""
    return [
        BrokenPromise("I1", each.path, f"{each.action} has ended without an outcome")
        for each in actions
        if each.ended and not each.has_outcome
    ]


def accepted_is_finished(open_actions: Iterable[ActionFacts], open_runs: set[str]) -> list[BrokenPromise]:
    """I1, of actions that have not ended: somebody carries each of them out."""
    return [
        BrokenPromise("I1", each.path, f"{each.action} was admitted, but nobody carries it out: {each.run}")
        for each in open_actions
        if each.run not in open_runs
    ]


def rest_is_stable(
    under_way: Iterable[tuple[str, str, int]],
    held: Iterable[tuple[str, str, str]],
    open_epochs: set[int],
    open_runs: set[str],
) -> list[BrokenPromise]:
    """I2: what is under way belongs to an open action (path, status, epoch), and so does a lock (path, owner, run)."""
    found = [
        BrokenPromise("I2", path, f"is {status}, but no action on it is open")
        for path, status, epoch in under_way
        if epoch not in open_epochs
    ]
    return found + [
        BrokenPromise("I2", path, f"is locked by a run that is over: {run}")
        for path, _, run in held
        if run not in open_runs
    ]


JudgedChange = tuple[str, str, str, str, str, str]  # action, actor, from, to, where it came from, what it was doing


class WalkPosition(NamedTuple):
    """Where a walk through a history has come to."""

    status: str = NONE
    came_from: str = NONE
    doing: str = ""
    epoch: int = 0


class HistoryWalk:
    """I4: an object's history is one path through its table, ends where the object is, and its epochs only rise.

    It takes line after line: a history may be long.
    """

    def __init__(self, table: StateTable, path: str, judged: dict[JudgedChange, bool] | None = None) -> None:
        self._table, self._path = table, path
        self._judged = {} if judged is None else judged  # what the table said before, for all objects of that kind
        self.wrong = ""
        self.resume(WalkPosition())

    def resume(self, reached: WalkPosition) -> None:
        """Begin there: the lines before were pruned."""
        self._now, self._came_from, self._doing, self._epoch = reached

    @property
    def reached(self) -> WalkPosition:
        """From where another walk can go on."""
        return WalkPosition(self._now, self._came_from, self._doing, self._epoch)

    def take(self, line: AuditLine) -> None:
        """The next line. After one that is wrong the others say nothing."""
        table = self._table
        if self.wrong or line.message.startswith(IGNORED) or line.action in table.hidden:
            return  # hidden work moves nothing, and stands in line with what does
        if line.source == NONE and self._now in table.vacant:
            self._now = NONE  # the name is used again
        self.wrong = self._complaint(line)
        if line.source not in table.moving and (line.source not in table.resting or _begins(table, line)):
            self._came_from, self._doing = line.source, line.action
        self._now, self._epoch = line.to, line.epoch

    def end(self, status: str) -> list[BrokenPromise]:
        """What is wrong with it, if the object is this now."""
        if not self.wrong and self._now != status:
            self.wrong = f"is {status}, but its history ends in {self._now}"
        return [BrokenPromise("I4", self._path, self.wrong)] if self.wrong else []

    def _complaint(self, line: AuditLine) -> str:
        if line.source != self._now:
            return f"line {line.seq} leaves {line.source}, but it was {self._now}"
        if line.epoch < self._epoch:
            return f"line {line.seq} was written by an older action than the one before"
        case = (line.action, line.actor, line.source, line.to, self._came_from, self._doing)
        if case not in self._judged:
            self._judged[case] = _legal(self._table, line, self._came_from, self._doing)
        if not self._judged[case]:
            return f"no row leads from {line.source} to {line.to} ({line.action}, {line.actor})"
        return ""


def _begins(table: StateTable, line: AuditLine) -> bool:
    """Does an action begin with this line? In a status that is rested in and passed through, only its row tells."""
    return table.entry_row(line.action, line.source, line.to) is not None


def _legal(table: StateTable, line: AuditLine, came_from: str, doing: str) -> bool:
    if line.action == HEAL:
        return line.to == table.recovery_status(doing, came_from)
    if line.source == line.to:
        return True
    return any(_row_allows(table, row, line, came_from) for row in table.rows)


def _row_allows(table: StateTable, row: Row, line: AuditLine, came_from: str) -> bool:
    """Does this row allow the line: into its work, out of it, or by one step?"""
    begins = row.during == line.to and (row.source == line.source or (line.actor == Actor.USER and line.source != NONE))
    ends = bool(row.during) and line.source in (row.during, *table.passing)
    lands = ends and line.to in (row.success_status(came_from), row.failure(came_from))
    steps = row.during is None and row.source == line.source and row.success_status(line.source) == line.to
    return begins or lands or steps


class Overlaps:
    """I5: an action and one on the same object, or on one above it, were never under way at the same time.

    Told by the order in which the history was written: an action's first line comes with its locks, its last line with
    their release. Paths come in their order, so only those that something may still come below are remembered.
    """

    def __init__(self) -> None:
        self._above: list[tuple[str, list[ActionFacts], list[int]]] = []  # path, its actions, their first lines

    def take(self, path: str, actions: Iterable[ActionFacts]) -> list[BrokenPromise]:
        """All actions of the next path."""
        while self._above and path >= f"{self._above[-1][0]};":  # `;` comes after `:`, which everything below has
            self._above.pop()
        mine = sorted((each for each in actions if each.first), key=attrgetter("first"))
        found = [finding for earlier, later in pairwise(mine) for finding in _overlap(earlier, later)]
        for above, theirs, firsts in self._above:
            if path.startswith(f"{above}:"):
                for each in mine:
                    at = bisect(firsts, each.first)
                    found += _overlap(theirs[at - 1], each) if at else []
                    found += _overlap(each, theirs[at]) if at < len(theirs) else []
        if mine:
            self._above.append((path, mine, [each.first for each in mine]))
        return found


def _overlap(earlier: ActionFacts, later: ActionFacts) -> list[BrokenPromise]:
    if earlier.ended and earlier.last < later.first:
        return []
    what = f"{later.action} began while {earlier.action} on {earlier.path} was under way"
    return [BrokenPromise("I5", later.path, what)]


def every_change_is_accounted_for(lines: Iterable[AuditLine], epochs: Container[int]) -> list[BrokenPromise]:
    """I11: behind every change there is an admitted action."""
    return [
        BrokenPromise("I11", line.path, f"line {line.seq} ({line.source} to {line.to}) belongs to no action")
        for line in lines
        if line.epoch not in epochs and not line.message.startswith(IGNORED)
    ]
