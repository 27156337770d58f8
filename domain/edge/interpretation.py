"""What a CRM's message means to an action. Pure, so that tests can try every order and repetition of messages.

A message either takes a row of the state table, reports progress of a running action, or is ignored with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from domain.edge.messages import CrmProgress, CrmResponse, ReportedInstance
from domain.edge.tables import CREATE_STATUSES, DELETE_STATUSES, UPDATE_STATUSES, CrmActor, S
from domain.statetable import NONE, Ruling, StateTable


class MessageEffect(StrEnum):
    """The sort of effect that a CRM's message has on an action."""

    MOVES = "moves"  # it takes a row
    ERROR = "error"  # it takes a row, to an error
    ENDS = "ends"  # it takes a row, to the action's goal
    PROGRESS = "news"  # no status changes, but there is new progress
    IGNORED = "ignored"


@dataclass(frozen=True)
class Interpretation:
    """The effect of a message: the status that it leads `to`, or `why` it is ignored."""

    effect: MessageEffect
    to: str = ""
    why: str = ""


@dataclass(frozen=True)
class CrmInterpreter:
    """Interprets a CRM's messages, given the state of the action that receives them."""

    table: StateTable
    status: str
    notify_id: int
    progress: CrmProgress | None = None
    actor: str = CrmActor.CRM

    def interpret_message(self, message: CrmResponse) -> Interpretation:
        """Returns the effect of this message in the current state."""
        if message.notify_id != self.notify_id:
            return _ignored_interpretation(f"notify-id {message.notify_id} is not the current one, {self.notify_id}")
        to = message.status
        if to != NONE and to not in self.table.statuses:
            return _ignored_interpretation(f"unknown state {message.state[:40]!r}")
        if to == self.status:
            return self._interpret_repeated_state(message)
        if self.table.judge_step(self.status, to, self.actor).ruling is not Ruling.GO:
            return _ignored_interpretation(
                f"no row lets {self.actor} move {self.table.label} from {self.status} to {message.state}"
            )
        if to in self.table.transitional_statuses and not to.endswith("Error"):
            return Interpretation(MessageEffect.MOVES, to)
        return Interpretation(MessageEffect.ERROR if to.endswith("Error") else MessageEffect.ENDS, to)

    def _interpret_repeated_state(self, message: CrmResponse) -> Interpretation:
        progress = message.progress
        is_later = progress and (self.progress is None or progress.task >= self.progress.task)  # a lower one came late
        if is_later and progress != self.progress:
            return Interpretation(MessageEffect.PROGRESS, self.status)
        return _ignored_interpretation(f"already {self.status}")


def _ignored_interpretation(why: str) -> Interpretation:
    return Interpretation(MessageEffect.IGNORED, why=why)


class ReconnectDecision(StrEnum):
    """The decision of an action after its CRM has reconnected."""

    WAIT = "wait"  # the CRM is at work, or will answer
    USE_REPORT = "hear"  # its report is the answer, which the state table then judges
    RESEND = "resend"  # it does not have the request
    LOST = "lost"  # the instance to change no longer exists


def decide_after_reconnect(status: str, reported: ReportedInstance | None, wanted: str) -> ReconnectDecision:
    """Decides what an action in `status` does after a reconnect, by the CRM's report and the wanted spec's digest."""
    there = reported.status if reported else NONE
    if status in CREATE_STATUSES:
        return ReconnectDecision.USE_REPORT if there != NONE else ReconnectDecision.RESEND
    if status in UPDATE_STATUSES:
        if there == S.READY and reported and reported.digest != wanted:
            return ReconnectDecision.RESEND
        return ReconnectDecision.USE_REPORT if there != NONE else ReconnectDecision.LOST
    if status in DELETE_STATUSES:
        return ReconnectDecision.RESEND if there == S.READY else ReconnectDecision.USE_REPORT
    return ReconnectDecision.WAIT


@dataclass(frozen=True)
class InstanceDifferences:
    """How a connecting CRM's instances differ from the inventory, for instances without an action."""

    missing: list[str]
    found_again: list[str]
    orphans: list[str]


def compare_instances(
    known: Mapping[str, tuple[str, bool]], busy: frozenset[str], there: Mapping[str, ReportedInstance]
) -> InstanceDifferences:
    """Compares the CRM's instances with the `known` ones (status, was missing); skips `busy` ones."""
    at_rest = {path: was for path, was in known.items() if path not in busy}
    present = {path for path, reported in there.items() if reported.status != NONE}
    return InstanceDifferences(
        missing=[path for path, (status, _) in at_rest.items() if status == S.READY and path not in present],
        found_again=[path for path, (_, missing) in at_rest.items() if missing and path in present],
        orphans=sorted(path for path in present if path not in known and path not in busy),
    )
