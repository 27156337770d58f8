"""Trying a policy: cases with the answers that are expected, and recorded actions that it would have refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from domain import registry
from domain.access import AccessPolicy, Subject
from domain.errors import Refused
from domain.identities import Principal
from domain.message import SenderName, ShortText
from domain.model import FrozenModel, Request
from domain.paths import check_path

CaseVerb = Annotated[str, StringConstraints(min_length=1, max_length=40, to_lower=True)]


class PolicyCase(FrozenModel):
    """One question to a policy, and the answer that is expected. Without a path: everywhere."""

    subject: SenderName
    groups: list[str] = []
    verb: CaseVerb
    path: ShortText = ""
    force: bool = False
    expect: Literal["allow", "deny"]


class PolicyCases(FrozenModel):
    """The file of `starter policy test`."""

    cases: list[PolicyCase] = Field(min_length=1, max_length=10_000)


class CaseDifference(FrozenModel):
    """A case that a policy answers otherwise than expected, and why."""

    number: int
    subject: str
    verb: str
    path: str
    expected: str
    answer: str
    why: str = ""


class RecordedAction(FrozenModel):
    """An action as the store has it: what a policy is asked about it. Its spec is not kept."""

    path: str
    action: str
    force: bool = False
    requested_by: str = ""
    principal: Principal | None = None
    began_at: datetime


class ReplayedRefusal(FrozenModel):
    """A recorded action that a policy would have refused, and why."""

    path: str
    action: str
    requested_by: str
    on_behalf_of: str = ""
    began_at: datetime
    why: str


def compare_cases(policy: AccessPolicy, cases: PolicyCases) -> list[CaseDifference]:
    """Returns the cases that the policy answers otherwise than expected."""
    found = []
    for number, case in enumerate(cases.cases, 1):
        why = _why_case_refused(policy, case)
        answer = "deny" if why else "allow"
        if answer != case.expect:
            told = {"subject": case.subject, "verb": case.verb, "path": case.path, "why": why}
            found.append(CaseDifference(number=number, expected=case.expect, answer=answer, **told))
    return found


def replay_actions(policy: AccessPolicy, actions: Iterable[RecordedAction]) -> Iterator[ReplayedRefusal]:
    """Yields the actions that the policy would have refused."""
    for action in actions:
        if why := _why_action_refused(policy, action):
            principal = action.principal.name if action.principal else ""
            yield ReplayedRefusal(
                path=action.path,
                action=action.action,
                requested_by=action.requested_by,
                on_behalf_of=principal if principal != action.requested_by else "",
                began_at=action.began_at,
                why=why,
            )


def _why_case_refused(policy: AccessPolicy, case: PolicyCase) -> str:
    if case.path:
        registry.kind_at(check_path(case.path))
    try:
        policy.authorize(Subject(case.subject, tuple(case.groups)), case.verb, case.path, case.force)
    except Refused as refused:
        return refused.message
    return ""


def _why_action_refused(policy: AccessPolicy, action: RecordedAction) -> str:
    """Judges what was asked for, without what the spec would add: clouds, and what a lease leads to."""
    names = {"path": action.path, "action": action.action, "requested_by": action.requested_by, "force": action.force}
    try:
        request = Request(**names)
        principal = action.principal or Principal(name=action.requested_by)
        subject = Subject(principal.name, tuple(principal.groups), principal.proven)
        if program := registry.find_requesting_program(request):
            if program in policy.users:
                policy.authorize(Subject(program), action.action, action.path)
            if registry.verb_of(request).on_behalf:
                policy.authorize_principal(request, subject)
        else:
            policy.authorize(subject, action.action, action.path, action.force)
    except Refused as refused:
        return refused.message
    return ""
