"""The invariants of a deployment: one function or class for each of the promises I1, I2, I4, I5 and I11.

They take plain facts and return the promises that are broken. `starter verify` feeds them the facts of a live system;
tests feed them those of systems whose workers were killed and whose providers failed.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from domain.message import FrozenModel
from domain.statetable import NONE, Actor, LineEffect, Row, StateTable

MAX_FINDINGS = 5_000
HEAL_ACTION = "heal"


@dataclass(frozen=True, slots=True)
class InvariantViolation:
    """An invariant that does not hold: which one, for which object, and how."""

    invariant: str
    path: str
    what: str


class VerificationReport(FrozenModel):
    """The result of `verify`: the violations found, and how much was checked."""

    findings: list[InvariantViolation] = []
    more: int = 0  # findings that are not listed
    looked_at: dict[str, int] = {}


@dataclass(slots=True)
class ActionRecord:
    """One admitted action, as it is stored. `first` and `last` are its lines in the history of its object."""

    epoch: int
    path: str
    action: str
    run: str
    ended: bool
    has_outcome: bool
    requested_by: str = ""
    first: int = 0
    last: int = 0


class AuditedHistoryLine(NamedTuple):
    """One history line, with the fields that the invariants check."""

    seq: int
    path: str
    actor: str
    action: str
    source: str
    to: str
    epoch: int
    effect: str = LineEffect.APPLIED


@dataclass
class AuditSnapshot:
    """The facts that the invariants are checked against at or below a path, from one snapshot of the store."""

    last: int = 0  # the highest epoch in the snapshot
    open: list[ActionRecord] = field(default_factory=list)  # actions that have not ended, everywhere
    under_way: list[tuple[str, str, int]] = field(default_factory=list)  # path, status, epoch
    held: list[tuple[str, str, str]] = field(default_factory=list)  # locks: path, owner, run
    findings: list[InvariantViolation] = field(default_factory=list)
    more: int = 0  # findings that are not listed
    actions: int = 0
    objects: int = 0
    lines: int = 0

    def add_findings(self, findings: Iterable[InvariantViolation]) -> None:
        """Adds findings, up to MAX_FINDINGS, and counts the rest."""
        for finding in findings:
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(finding)
            else:
                self.more += 1


def find_missing_outcomes(actions: Iterable[ActionRecord]) -> list[InvariantViolation]:
    """Checks I1 for actions that have ended: each has an outcome."""
    return [
        InvariantViolation("I1", action.path, f"{action.action} has ended without an outcome")
        for action in actions
        if action.ended and not action.has_outcome
    ]


def find_missing_runs(open_actions: Iterable[ActionRecord], open_runs: set[str]) -> list[InvariantViolation]:
    """Checks I1 for actions that have not ended: each has an open workflow run."""
    return [
        InvariantViolation("I1", action.path, f"{action.action} was admitted, but no run carries it out: {action.run}")
        for action in open_actions
        if action.run not in open_runs
    ]


def find_unowned_transitions(
    under_way: Iterable[tuple[str, str, int]],
    held: Iterable[tuple[str, str, str]],
    open_epochs: set[int],
    open_runs: set[str],
) -> list[InvariantViolation]:
    """Checks I2: every object in transition (path, status, epoch) and lock (path, owner, run) has an open action."""
    broken = [
        InvariantViolation("I2", path, f"is {status}, but no action on it is open")
        for path, status, epoch in under_way
        if epoch not in open_epochs
    ]
    return broken + [
        InvariantViolation("I2", path, f"is locked by a run that is over: {run}")
        for path, _, run in held
        if run not in open_runs
    ]


ChangeKey = tuple[str, str, str, str, str, str]  # action, actor, from, to, where it came from, what it was doing


class HistoryPosition(NamedTuple):
    """How far a HistoryChecker has come; another one can go on from there."""

    status: str = NONE
    came_from: str = NONE
    doing: str = ""
    epoch: int = 0


class HistoryChecker:
    """I4: an object's history follows its state table, ends in the object's status, and its epochs never fall.

    It takes one line at a time, as a history may be long.
    """

    def __init__(self, table: StateTable, path: str, judged: dict[ChangeKey, bool] | None = None) -> None:
        self._table, self._path = table, path
        self._judged = {} if judged is None else judged  # earlier answers, shared by all objects of a kind
        self.violation = ""
        self.position = HistoryPosition()  # of the last line; where the history begins, if lines were pruned

    def check_line(self, line: AuditedHistoryLine) -> None:
        """Checks the next line of the history. After the first violation, later lines are not checked."""
        table, was = self._table, self.position
        if self.violation or line.effect == LineEffect.IGNORED or line.action in table.hidden_actions:
            return  # a hidden action changes no status, and waits for those that do
        if line.source == NONE and was.status in table.vacant_statuses:
            was = was._replace(status=NONE)  # the name is used again
        self.violation = self._describe_violation(line, was)
        # From a status that is both resting and passing, only the row can tell whether an action begins here.
        begins = (
            line.source not in table.transitional_resting_statuses
            or table.find_entry_row(line.action, line.source, line.to) is not None
        )
        if line.source not in table.always_transitional_statuses and begins:
            self.position = HistoryPosition(line.to, line.source, line.action, line.epoch)
        else:
            self.position = HistoryPosition(line.to, was.came_from, was.doing, line.epoch)

    def check_final_status(self, status: str) -> list[InvariantViolation]:
        """Compares the end of the history with the object's current status. Returns all violations."""
        if not self.violation and self.position.status != status:
            self.violation = f"is {status}, but its history ends in {self.position.status}"
        return [InvariantViolation("I4", self._path, self.violation)] if self.violation else []

    def _describe_violation(self, line: AuditedHistoryLine, was: HistoryPosition) -> str:
        if line.source != was.status:
            return f"line {line.seq} leaves {line.source}, but it was {was.status}"
        if line.epoch < was.epoch:
            return f"line {line.seq} was written by an older action than the one before"
        case = (line.action, line.actor, line.source, line.to, was.came_from, was.doing)
        if case not in self._judged:
            self._judged[case] = _is_legal_change(self._table, line, was.came_from, was.doing)
        if not self._judged[case]:
            return f"no row leads from {line.source} to {line.to} ({line.action}, {line.actor})"
        return ""


def _is_legal_change(table: StateTable, line: AuditedHistoryLine, came_from: str, doing: str) -> bool:
    if line.action == HEAL_ACTION:
        return line.to == table.recovery_status(doing, came_from)
    if line.source == line.to:
        return True
    return any(_row_allows_line(table, row, line, came_from) for row in table.rows)


def _row_allows_line(table: StateTable, row: Row, line: AuditedHistoryLine, came_from: str) -> bool:
    """Tells whether this row allows the line: as the begin or the end of its action, or as a step."""
    own = row.action == line.action  # a step bears the name of the action that it is a part of
    entered = row.source == line.source or (line.actor == Actor.USER and line.source != NONE)
    begins = own and row.during == line.to and entered
    ends = own and bool(row.during) and line.source in (row.during, *table.passing_statuses)
    lands = ends and line.to in (row.success_status(came_from), row.failure_status(came_from))
    steps = row.during is None and row.source == line.source and row.success_status(line.source) == line.to
    return begins or lands or steps


class ActionOverlapChecker:
    """I5: no two actions on the same object, or on an object and one below it, were under way at the same time.

    Decided by the order of the history lines: an action's first line is written with its locks, its last line with
    their release. Paths must come sorted, so that only paths which can still have descendants are remembered.
    """

    def __init__(self) -> None:
        self._above: list[tuple[str, list[ActionRecord], list[int]]] = []  # path, its actions, their first lines

    def check_actions_of_path(self, path: str, actions: Iterable[ActionRecord]) -> list[InvariantViolation]:
        """Checks all actions of the next path."""
        while self._above and path >= f"{self._above[-1][0]};":  # `;` comes after `:`, which everything below has
            self._above.pop()
        mine = sorted((action for action in actions if action.first), key=attrgetter("first"))
        overlaps = [finding for earlier, later in pairwise(mine) for finding in _find_overlaps(earlier, later)]
        for above, theirs, firsts in self._above:
            if path.startswith(f"{above}:"):
                for action in mine:
                    at = bisect(firsts, action.first)
                    overlaps += _find_overlaps(theirs[at - 1], action) if at else []
                    overlaps += _find_overlaps(action, theirs[at]) if at < len(theirs) else []
        if mine:
            self._above.append((path, mine, [action.first for action in mine]))
        return overlaps


def _find_overlaps(earlier: ActionRecord, later: ActionRecord) -> list[InvariantViolation]:
    if earlier.ended and earlier.last < later.first:
        return []
    what = f"{later.action} began while {earlier.action} on {earlier.path} was under way"
    return [InvariantViolation("I5", later.path, what)]


def find_unaccounted_changes(lines: Iterable[AuditedHistoryLine], epochs: Container[int]) -> list[InvariantViolation]:
    """Checks I11: every change in the history belongs to an admitted action."""
    return [
        InvariantViolation("I11", line.path, f"line {line.seq} ({line.source} to {line.to}) belongs to no action")
        for line in lines
        if line.epoch not in epochs and line.effect != LineEffect.IGNORED
    ]
