"""Judges a request by the state table of its object and, for a group, by that of its members. Reads nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from domain.errors import Category, Refused
from domain.kinds import Kind
from domain.registry import ResolvedRequest
from domain.statetable import NONE, Row, Ruling


@dataclass(frozen=True)
class AdmissionPlan:
    """The decision to admit an action: its row, and the row for the members in each status that allows it."""

    row: Row | None  # None: there is nothing to do
    came_from: str
    members: dict[str, Row]
    skipped: dict[str, int]


@dataclass(frozen=True)
class ObjectFacts:
    """What a request is judged by: its object as it is stored, if it exists, and how many members have each status."""

    status: str
    spec: Mapping[str, Any]
    count_members: Callable[[], dict[str, int]]


def plan_action(asked: ResolvedRequest, facts: ObjectFacts, must_queue: bool = False) -> AdmissionPlan:
    """Returns what the action does; raises Refused, with what is allowed instead, if it may not begin.

    A hidden action that must queue is admitted in any status, which may change before its turn.
    """
    kind, request = asked.kind, asked.request
    if asked.is_hidden and must_queue and facts.status != NONE:
        row = next(row for row in kind.table.rows if row.action == request.action)
        return AdmissionPlan(row, facts.status, {}, {})
    verdict = kind.table.judge(facts.status, request.action, force=request.force)
    if verdict.ruling is Ruling.REFUSED:
        if facts.status == NONE:
            hint = f"see what there is: starter list {kind.name}"
            raise Refused(Category.NOT_FOUND, f"{verdict.reason}: {request.path}", hint)
        raise _refusal_on_existing_object(asked, facts, verdict.reason)
    if verdict.ruling is Ruling.ALREADY:
        return AdmissionPlan(None, facts.status, {}, {})
    if asked.member_kind is None or facts.status == NONE or asked.verb.takes_no_members:
        return AdmissionPlan(verdict.row, facts.status, {}, {})
    return _plan_members(asked, facts, asked.member_kind, verdict.row)


def _plan_members(asked: ResolvedRequest, facts: ObjectFacts, members: Kind, row: Row | None) -> AdmissionPlan:
    """Picks the members that the action applies to, by their statuses."""
    request, table, counts = asked.request, members.table, facts.count_members()
    verdicts = table.judge_members(counts, request.action, request.force)
    going = {word: verdict.row for word, verdict in verdicts.items() if verdict.ruling is Ruling.GO and verdict.row}
    skipped = {word: counts[word] for word in counts if word not in going}
    if going or (row and row.then == NONE and not counts):  # an empty group can still be removed
        return AdmissionPlan(row, facts.status, going, skipped)
    # An empty group has nothing to do if the action is refused for no status that a member may rest in.
    judged = verdicts or table.judge_members(table.stable_statuses, request.action)
    rulings = {verdict.ruling for verdict in judged.values()}
    if Ruling.ALREADY in rulings if counts else Ruling.REFUSED not in rulings:
        return AdmissionPlan(None, facts.status, {}, skipped)
    reasons = [f"{verdicts[word].reason} ({counts[word]} of them)" for word in counts]
    message = "; ".join(reasons) or f"{request.path} has no {table.label} to {request.action}"
    raise Refused(Category.NOT_ALLOWED, message, describe_allowed_actions(members, counts))


def _refusal_on_existing_object(asked: ResolvedRequest, facts: ObjectFacts, reason: str) -> Refused:
    """Returns a refusal with the status that readers see, and with what is allowed in it."""
    kind, path, status = asked.kind, asked.request.path, facts.status
    if kind.aggregate and asked.member_kind:  # the stored status is only a phase
        counts = facts.count_members()
        shown = kind.aggregate(status, counts)
        allowed = _describe_actions_on_group(kind, asked.member_kind, status, counts)
        reason = reason.removesuffix(status) + shown if reason.endswith(f"under {status}") else reason
    else:
        shown, allowed = status, describe_allowed_actions(kind, [status])
    taken = "take another name, or act on this one: " if kind.table.is_creation(asked.request.action) else ""
    remedy = kind.find_remedy(path, status, facts.spec)
    hint = f"{taken}{path} is {shown}; {allowed}"
    return Refused(Category.NOT_ALLOWED, reason, f"{remedy}; {hint}" if remedy else hint)


def _describe_actions_on_group(kind: Kind, members: Kind, status: str, counts: Mapping[str, int]) -> str:
    """Returns the actions that the group allows and one of its members, if it has any, allows as well."""
    allowed = [
        action
        for action in kind.table.allowed_actions(status)
        if action in kind.requestable_actions
        and (
            not counts
            or kind.find_verb(action).takes_no_members
            or any(verdict.ruling is Ruling.GO for verdict in members.table.judge_members(counts, action).values())
        )
    ]
    return f"allowed now: {', '.join(allowed) or 'nothing'}"


def describe_allowed_actions(kind: Kind, statuses: Iterable[str]) -> str:
    """Returns the actions allowed in these statuses, and those that need --force, as the hint of a refusal."""
    words, table, offered = list(statuses), kind.table, kind.requestable_actions
    plain = dict.fromkeys(action for word in words for action in table.allowed_actions(word) if action in offered)
    forced = dict.fromkeys(
        action for word in words for action in table.actions_needing_force(word) if action in offered
    )
    told = f"allowed now: {', '.join(plain) or 'nothing'}"
    return f"{told}; with --force: {', '.join(forced)}" if forced else told
