"""Judges a request by the state table of its object and, for a group, by that of its members. Reads nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from domain.errors import Category, Refused
from domain.registry import ResolvedRequest
from domain.statetable import NONE, Row, Ruling


@dataclass(frozen=True)
class AdmissionPlan:
    """The decision to admit an action: its row, and the row for the members in each status that allows it."""

    row: Row | None  # None: there is nothing to do
    came_from: str
    members: Mapping[str, Row]
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
    kind, request, status = asked.kind, asked.request, facts.status
    if asked.is_hidden and must_queue and status != NONE:
        row = next(row for row in kind.table.rows if row.action == request.action)
        return AdmissionPlan(row, status, {}, {})
    verdict, counts = kind.table.judge(status, request.action, force=request.force), {}
    members = None if status == NONE or asked.verb.takes_no_members else asked.member_kind
    if members and verdict.row and verdict.ruling is Ruling.GO:
        counts = facts.count_members()
        verdict = members.table.judge_members(counts, request.action, verdict.row, request.force)
        if verdict.ruling is Ruling.REFUSED:
            message = verdict.reason or f"{request.path} has no {members.table.label} to {request.action}"
            hint = members.table.describe_allowed_actions(counts, members.requestable_actions)
            raise Refused(Category.NOT_ALLOWED, message, hint)
    if verdict.ruling is Ruling.REFUSED and status == NONE:
        hint = f"see what there is: starter list {kind.name}"
        raise Refused(Category.NOT_FOUND, f"{verdict.reason}: {request.path}", hint)
    if verdict.ruling is Ruling.REFUSED:
        raise _refusal_on_existing_object(asked, facts, verdict.reason)
    skipped = {word: number for word, number in counts.items() if word not in verdict.members}
    return AdmissionPlan(verdict.row if verdict.ruling is Ruling.GO else None, status, verdict.members, skipped)


def _refusal_on_existing_object(asked: ResolvedRequest, facts: ObjectFacts, reason: str) -> Refused:
    """Returns a refusal with the status that readers see, and with what is allowed in it."""
    kind, members, path, status = asked.kind, asked.member_kind, asked.request.path, facts.status
    if kind.aggregate and members:  # the stored status is only a phase
        counts = facts.count_members()
        shown = kind.aggregate(status, counts)
        reason = reason.removesuffix(status) + shown if reason.endswith(f"under {status}") else reason
        alone = [verb.action for verb in kind.verbs if verb.takes_no_members]
        actions = [  # that one of its members, if it has any, allows as well
            action
            for action in kind.table.allowed_actions(status)
            if action in kind.requestable_actions
            and (not counts or action in alone or members.table.allows_any_member(counts, action))
        ]
        allowed = f"allowed now: {', '.join(actions) or 'nothing'}"
    else:
        shown, allowed = status, kind.table.describe_allowed_actions([status], kind.requestable_actions)
    taken = "take another name, or act on this one: " if kind.table.is_creation(asked.request.action) else ""
    remedy = kind.find_remedy(path, status, facts.spec)
    hint = f"{taken}{path} is {shown}; {allowed}"
    return Refused(Category.NOT_ALLOWED, reason, f"{remedy}; {hint}" if remedy else hint)
