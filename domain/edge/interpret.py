"""What a CRM's message means to an action: pure, so that every order and every repetition can be tried.

A message either takes a row of the table, brings news of an action that goes on, or is ignored with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from domain.edge.messages import CrmProgress, CrmResponse, ReportedInstance
from domain.edge.tables import CREATES, DELETES, UPDATES, CrmActor, S
from domain.statetable import NONE, Ruling, StateTable


class Effect(StrEnum):
    """What a CRM's message does to an action."""

    MOVES = "moves"  # a row is taken
    ERROR = "error"  # a row is taken, to an error
    ENDS = "ends"  # a row is taken, to where the action wants to be
    NEWS = "news"  # nothing moves, but something is known now
    IGNORED = "ignored"


@dataclass(frozen=True)
class Interpretation:
    """What a message does: which status it leads `to`, or `why` it is ignored."""

    effect: Effect
    to: str = ""
    why: str = ""


@dataclass(frozen=True)
class CrmInterpreter:
    """What an action knows of its object while it listens."""

    table: StateTable
    status: str
    notify_id: int
    progress: CrmProgress | None = None
    actor: str = CrmActor.CRM

    def interpret(self, said: CrmResponse) -> Interpretation:
        """What this message does, here and now."""
        if said.notify_id != self.notify_id:
            return _ignored(f"notify-id {said.notify_id} is not the current one, {self.notify_id}")
        to = said.status
        if to != NONE and to not in self.table.statuses:
            return _ignored(f"unknown state {said.state[:40]!r}")
        if to == self.status:
            return self._again(said)
        if self.table.judge_step(self.status, to, self.actor).ruling is not Ruling.GO:
            return _ignored(f"no row lets {self.actor} move {self.table.label} from {self.status} to {said.state}")
        if to in self.table.transitional and not to.endswith("Error"):
            return Interpretation(Effect.MOVES, to)
        return Interpretation(Effect.ERROR if to.endswith("Error") else Effect.ENDS, to)

    def _again(self, said: CrmResponse) -> Interpretation:
        if said.progress and said.progress != self.progress and _later(said.progress, self.progress):
            return Interpretation(Effect.NEWS, self.status)
        return _ignored(f"already {self.status}")


def _ignored(why: str) -> Interpretation:
    return Interpretation(Effect.IGNORED, why=why)


def _later(new: CrmProgress, known: CrmProgress | None) -> bool:
    """Progress goes forward; what is behind the last word came late."""
    return known is None or new.task >= known.task


class Resolution(StrEnum):
    """What to do about an action whose CRM has connected again."""

    WAIT = "wait"  # it is at work, or it will say
    HEAR = "hear"  # what it reports is an answer by itself
    RESEND = "resend"  # it does not know of the request
    LOST = "lost"  # what was to be changed is not there any more


def resolve(status: str, reported: ReportedInstance | None, wanted: str) -> Resolution:
    """An action in `status`, and what the CRM has of its object; `wanted` is the digest of the spec it should have."""
    there = reported.status if reported else NONE
    if status in CREATES:
        return _consistent(there) if there != NONE else Resolution.RESEND
    if status in UPDATES:
        if there == S.READY and reported and reported.digest != wanted:
            return Resolution.RESEND
        return _consistent(there) if there != NONE else Resolution.LOST
    if status in DELETES:
        return Resolution.RESEND if there == S.READY else _consistent(there)
    return Resolution.WAIT


def _consistent(there: str) -> Resolution:
    """Whatever it is, the table knows what to do with it; a state that no row accepts is ignored there."""
    return Resolution.HEAR if there else Resolution.WAIT


@dataclass(frozen=True)
class Differences:
    """What a connecting CRM has, against what the inventory says, for instances that no action is about."""

    missing: list[str]
    found_again: list[str]
    orphans: list[str]


def compare(
    known: Mapping[str, tuple[str, bool]], busy: frozenset[str], there: Mapping[str, ReportedInstance]
) -> Differences:
    """`known`: each instance's status and whether it was missing before. Busy ones are their actions' business."""
    at_rest = {path: was for path, was in known.items() if path not in busy}
    present = {path for path, reported in there.items() if reported.status != NONE}
    return Differences(
        missing=[path for path, (status, _) in at_rest.items() if status == S.READY and path not in present],
        found_again=[path for path, (_, missing) in at_rest.items() if missing and path in present],
        orphans=sorted(path for path in present if path not in known and path not in busy),
    )
