"""Why an object is in its status, what it waits for, and which actions it would admit now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from client.actions import ActionClient
from client.runs import ActionRun
from domain import registry
from domain.errors import Category, Refused, one_line
from domain.kinds import Verb
from domain.model import HistoryLine, Model, ObjectView, Request
from domain.paths import short_path
from domain.statetable import LineEffect, Ruling

HISTORY_LINES = 20
MEMBERS_SHOWN = 5


class Remark(Model):
    """One thing to know about an object: what it is about, and a sentence."""

    about: str
    text: str


class Explanation(Model):
    """An object's status, the reasons for it, and what can be done now."""

    path: str
    status: str
    since: datetime
    remarks: list[Remark]
    run: str = ""  # the action that runs now
    allowed: list[str] = []  # the actions that would be admitted now


async def explain_object(client: ActionClient, path: str) -> Explanation:
    """Explains an object's status; Refused if it does not exist."""
    view = await client.read_object(path)
    lines = await client.read_history(path, HISTORY_LINES)
    run = await find_running_action(client, path)
    remarks = [
        *describe_last_change(view, lines),
        *(await describe_running_action(client, path, run) if run else []),
        *await describe_members_with_errors(client, view),
    ]
    allowed, blockers = ([], []) if run else await find_possible_actions(client, view)
    return Explanation(
        path=path,
        status=view.status,
        since=view.changed_at,
        remarks=[*remarks, *(Remark(about="in the way", text=text) for text in blockers)],
        run=run.run_id if run else "",
        allowed=[verb.action for verb in allowed],
    )


async def find_running_action(client: ActionClient, path: str) -> ActionRun | None:
    """Returns the run of the object's action, if one is open."""
    newest = await client.newest_run(path)
    return newest if newest and newest.is_open else None


def describe_last_change(view: ObjectView, lines: list[HistoryLine]) -> list[Remark]:
    """Returns the last change: who requested it, and what went wrong."""
    kind = registry.find_kind(view.kind)
    changes = [line for line in lines if line.effect is not LineEffect.IGNORED]
    found = []
    if changes:
        last = changes[-1]
        # A group's result is in the message: its own stored status says nothing about its members.
        over = last.source == last.to or (kind.aggregate and last.to in kind.table.stable_statuses)
        what = "ended" if over else f"took it from {last.source} to {last.to}"
        by = f", asked for by {last.requested_by}" if last.requested_by else ""
        why = f": {last.message}" if last.message else ""
        found.append(Remark(about="because", text=f"{last.action} {what}{by}{why}"))
        if last.reason:
            found.append(Remark(about="", text=f"reason given: {last.reason}"))
    if view.error:
        found.append(Remark(about="trouble", text=view.error))
    ignored = [line for line in lines if line.effect is LineEffect.IGNORED]
    if ignored:
        last = ignored[-1]
        found.append(
            Remark(about="ignored", text=f"{last.actor} said {last.to} at {_format_time(last.at)}; {last.message}")
        )
    return found


async def describe_running_action(client: ActionClient, path: str, run: ActionRun) -> list[Remark]:
    """Returns the running action, and what it waits for."""
    since = _format_time(run.start_time)
    obstacle, _hint = run.describe_obstacle()
    if obstacle:
        return [Remark(about="running", text=f"{run.action} since {since}"), Remark(about="stopped", text=obstacle)]
    seen = await client.try_read_progress(path, run.run_id)
    if seen is None:
        away = "its workflow does not answer; is a worker there? see: starter doctor"
        return [Remark(about="running", text=f"{run.action} since {since}: {away}")]
    counted = f", {seen.done} of {seen.targets} done, {seen.failed} failed" if seen.targets else ""
    running = Remark(about="running", text=f"{seen.action} since {since}: {seen.step or seen.phase}{counted}")
    return [running, *(Remark(about="waits for", text=text) for text in _pending_activities(run))]


async def describe_members_with_errors(client: ActionClient, view: ObjectView) -> list[Remark]:
    """Returns members with an error."""
    member = registry.kind_at(view.path).member
    if member is None:
        return []
    wrong = [view async for view in client.iterate_objects(member, view.path) if view.error]
    found = [
        Remark(about="trouble", text=f"{short_path(view.path)} is {view.status}: {view.error}")
        for view in wrong[:MEMBERS_SHOWN]
    ]
    more = len(wrong) - MEMBERS_SHOWN
    return found + ([Remark(about="", text=f"and {more} more")] if more > 0 else [])


async def find_possible_actions(client: ActionClient, view: ObjectView) -> tuple[list[Verb], list[str]]:
    """Dry-runs each verb: returns those that begin would admit now, and what blocks the others."""
    kind = registry.find_kind(view.kind)
    allowed: list[Verb] = []
    blockers: dict[str, None] = {}
    for verb in (verb for verb in kind.verbs if verb.action in kind.offered_actions):
        refusal = await _dry_run_refusal(client, Request(path=view.path, action=verb.action))
        if refusal is None or (
            refusal.category is Category.INVALID and verb.action in kind.table.allowed_actions(view.phase)
        ):
            allowed.append(verb)  # invalid: it needs options, and nothing more can be checked without them
        elif refusal.category is Category.CONFLICT:
            blockers[refusal.message] = None
    return allowed, list(blockers)


async def _dry_run_refusal(client: ActionClient, request: Request) -> Refused | None:
    """Returns the refusal of a dry run, if any. An action with nothing to do counts as refused."""
    try:
        admission = await client.check_request(request)
    except Refused as refused:
        return refused
    if admission.grant and admission.grant.ruling is Ruling.ALREADY:
        return Refused(Category.NOT_ALLOWED, "nothing to do")
    return admission.refusal.to_error() if admission.refusal else None


def _pending_activities(run: ActionRun) -> Iterator[str]:
    """Yields the pending activities, grouped by type."""
    alike: Counter[str] = Counter()
    for activity in run.raw_description.pending_activities:
        again = f", attempt {activity.attempt}" if activity.attempt > 1 else ""
        failed = f": {one_line(activity.last_failure.message, 200)}" if activity.last_failure.message else ""
        alike[f"{activity.activity_type.name.replace('_', ' ')}{again}{failed}"] += 1
    for what, number in alike.items():
        yield f"{what} ({number} of these)" if number > 1 else what


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%SZ}"
