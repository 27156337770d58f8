"""Why an object is in its status, what it waits for, and which actions it would admit now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from client.actions import ActionClient
from client.runs import ActionRun, find_run
from domain import registry, wire
from domain.errors import Category, Refused, format_one_line
from domain.kinds import Verb
from domain.locks import LocksView
from domain.model import FrozenModel, HistoryLine, ObjectView, ReadQuery, Request
from domain.paths import ancestor_paths, short_path
from domain.statetable import NO_STATUS, NONE, LineEffect, Ruling

HISTORY_LINES = 20
MEMBERS_SHOWN = 5


class Remark(FrozenModel):
    """One thing to know about an object: what it is about, and a sentence."""

    about: str
    text: str


class Explanation(FrozenModel):
    """An object's status, the reasons for it, and what can be done now."""

    path: str
    kind: str
    status: str
    since: datetime
    remarks: list[Remark]
    run: str = ""  # the action that runs now
    workflow: str = ""  # the action that is described: the one that runs, else the last that changed the object
    described_run: str = ""
    allowed: list[str] = []  # the actions that would be admitted now
    allowed_with_force: list[str] = []
    hint: str = ""  # what helps instead of an action: to wait, to unpause, to heal
    remedy: str = ""  # what helps first, such as to start the program that an object waits for
    remedy_command: str = ""


@dataclass
class PossibleActions:
    """The verbs that would be admitted now, those that need force, and who is in the way of the others."""

    allowed: list[Verb] = field(default_factory=list)
    forced: list[Verb] = field(default_factory=list)
    blockers: dict[str, None] = field(default_factory=dict)


async def explain_object(client: ActionClient, path: str) -> Explanation:
    """Explains an object's status; Refused if it does not exist."""
    newest = await client.newest_run(path)
    run = newest if newest and newest.is_open else None
    view = await _read_or_explain_absence(client, path, run)
    lines = await client.read_history(path, HISTORY_LINES)
    members = await _list_members(client, view)
    remarks = describe_last_change(view, lines, members)
    workflow, described_run = (path, run.run_id) if run else _find_last_changing_run(lines)
    possible, hint, remedy = PossibleActions(), "", None
    if run:
        running, hint = await describe_running_action(client, path, run)
        remarks += running
    elif newest and view.target_action != NONE and not await _is_moved_by_open_run(client, path):
        remarks.append(await _describe_cut_off_action(client, view, workflow, described_run))
        hint = "restore it now: starter heal; a sweep does it within minutes, and so does the next action"
    else:
        remarks.append(Remark(about="running", text="nothing"))
        possible = await find_possible_actions(client, view)
        remedy = registry.find_kind(view.kind).find_remedy(path, view.phase, view.spec)
    remarks += describe_members_with_errors(members)
    return Explanation(
        path=path,
        kind=view.kind,
        status=view.status,
        since=view.changed_at,
        remarks=[*remarks, *(Remark(about="in the way", text=text) for text in possible.blockers)],
        run=run.run_id if run else "",
        workflow=workflow,
        described_run=described_run,
        allowed=[verb.action for verb in possible.allowed],
        allowed_with_force=[verb.action for verb in possible.forced],
        hint=hint,
        remedy=str(remedy) if remedy else "",
        remedy_command=remedy.command if remedy else "",
    )


async def _read_or_explain_absence(client: ActionClient, path: str, run: ActionRun | None) -> ObjectView:
    """Reads the object. If there is none, says what removed it, or names the workflow of a stranger that has its ID."""
    try:
        return await client.read_object(path)
    except Refused as refused:
        if refused.category is not Category.NOT_FOUND:
            raise
        if run and run.is_open and run.describe_foreign_run():
            why, hint = run.describe_obstacle()
            raise Refused(refused.category, f"{refused.message}, but {why}", hint) from refused
        if not (lines := await client.read_history(path, 1)):
            raise
        last = lines[-1]
        by = f", requested by {last.requested_by}" if last.requested_by else ""
        removed = f"{refused.message}: {last.action} removed it at {_format_time(last.at)}{by}"
        raise Refused(refused.category, removed, f"what happened before: starter history {path}") from refused


async def _is_moved_by_open_run(client: ActionClient, path: str) -> bool:
    """Tells whether a run that may move this object is open: of an object above it, or of an owner of its lock."""
    held = (await client.run_query(wire.READ_LOCKS, ReadQuery(path=path), LocksView)).locks
    owners = dict.fromkeys([*(lock.owner for lock in held if lock.path == path), *ancestor_paths(path)])
    return any([(run := await client.newest_run(owner)) and run.is_open for owner in owners])


def _find_last_changing_run(lines: list[HistoryLine]) -> tuple[str, str]:
    """Returns workflow ID and run of the action that last changed the object; both empty if that was no action."""
    changes = [line for line in lines if line.effect is not LineEffect.IGNORED]
    if not changes or not changes[-1].run:
        return "", ""
    return registry.workflow_id_of(changes[-1].workflow, changes[-1].action), changes[-1].run


async def _describe_cut_off_action(client: ActionClient, view: ObjectView, workflow: str, run: str) -> Remark:
    """Says which action was cut off, and how its run ended: a later run under the same ID may be a stranger's."""
    ended = await find_run(client.client, workflow, run) if run else None
    how = f" ({ended.status.name.lower().replace('_', ' ')})" if ended else ""
    cut_off = f"{view.target_action}: its workflow was ended from outside{how}, so it could not finish"
    return Remark(about="cut off", text=cut_off)


async def _list_members(client: ActionClient, view: ObjectView) -> list[ObjectView]:
    """Returns the objects from whose statuses that of a group is computed."""
    kind = registry.find_kind(view.kind)
    member = kind.member or kind.counted_kind
    if member is None:
        return []
    return [found async for found in client.iterate_objects(member, view.path) if found.path != view.path]


def describe_last_change(view: ObjectView, lines: list[HistoryLine], members: list[ObjectView]) -> list[Remark]:
    """Returns the last change: who requested it, and what went wrong.

    The status of a group also changes by actions on its members: one that failed later is the reason.
    """
    kind = registry.find_kind(view.kind)
    changes = [line for line in lines if line.effect is not LineEffect.IGNORED]
    found = []
    if changes:
        last = changes[-1]
        # A group's result is in the message: its own stored status says nothing about its members.
        over = last.source == last.to or (kind.aggregate and last.to in kind.table.stable_statuses)
        what = "ended" if over else f"took it from {_former_status(view, last, members)} to {last.to}"
        asked = last.requested_by and any(verb.action == last.action for verb in kind.verbs)  # else it was a report
        by = f", asked for by {last.requested_by}" if asked else f", by the {last.actor}"
        why = f": {last.message}" if last.message else ""
        later = [member for member in members if member.error and member.epoch > view.epoch]
        found += [Remark(about="because", text=_describe_error(member)) for member in later[:1]]
        found.append(Remark(about="before" if later else "because", text=f"{last.action} {what}{by}{why}"))
        if last.reason:
            found.append(Remark(about="", text=f"reason given: {last.reason}"))
    if view.error:
        found.append(Remark(about="trouble", text=view.error))
    ignored = [line for line in lines if line.effect is LineEffect.IGNORED]
    if ignored:
        last = ignored[-1]
        found.append(Remark(about="ignored", text=_describe_ignored_line(last)))
    return found


def _former_status(view: ObjectView, last: HistoryLine, members: list[ObjectView]) -> str:
    """Returns the status before a change. That of a group at rest is computed from what its members came from."""
    kind = registry.find_kind(view.kind)
    if not kind.aggregate or last.source != kind.derived_status:
        return last.source
    former = (member.previous_status if member.epoch == view.epoch else member.status for member in members)
    return kind.aggregate(last.source, Counter(former))


def _describe_error(member: ObjectView) -> str:
    return f"{short_path(member.path)} is {member.status}: {member.error}"


def _describe_ignored_line(line: HistoryLine) -> str:
    """Says what was ignored, when and why; a message that could not be read names no status."""
    what = "a message" if line.to == NO_STATUS else f"{line.actor} said {line.to}"
    return f"{what} at {_format_time(line.at)}; {line.message}"


async def describe_running_action(client: ActionClient, path: str, run: ActionRun) -> tuple[list[Remark], str]:
    """Returns the running action with what it waits for, and what can be done about it."""
    since = f"{run.action} since {_format_time(run.start_time)}"
    obstacle, hint = run.describe_obstacle()
    if obstacle:
        return [Remark(about="running", text=since), Remark(about="stopped", text=obstacle)], hint
    wait, end = (f"starter {verb} {short_path(path)}" for verb in ("wait", "cancel"))
    hint = f"wait for it: {wait}; end it: {end}; or take over, with any action and --force"
    seen = await client.try_read_progress(path, run.run_id)
    if seen is None:
        away = f"{since}: its workflow does not answer; is a worker there? see: starter doctor"
        return [Remark(about="running", text=away)], hint
    counted = f", {seen.done} of {seen.targets} done, {seen.failed} failed" if seen.targets else ""
    began = f"{seen.action} since {_format_time(run.start_time)}"
    running = Remark(about="running", text=f"{began}: {seen.step or seen.phase}{counted}")
    return [running, *(Remark(about="waits for", text=text) for text in _pending_activities(run))], hint


def describe_members_with_errors(members: list[ObjectView]) -> list[Remark]:
    """Returns members with an error."""
    wrong = [member for member in members if member.error]
    found = [Remark(about="trouble", text=_describe_error(member)) for member in wrong[:MEMBERS_SHOWN]]
    more = len(wrong) - MEMBERS_SHOWN
    return found + ([Remark(about="", text=f"and {more} more")] if more > 0 else [])


async def find_possible_actions(client: ActionClient, view: ObjectView) -> PossibleActions:
    """Dry-runs each verb that people may request. One that needs options counts as allowed if its table says so."""
    kind = registry.find_kind(view.kind)
    found = PossibleActions()
    for verb in (verb for verb in kind.verbs if verb.action in kind.requestable_actions):
        refusal = await _dry_run_refusal(client, Request(path=view.path, action=verb.action))
        in_table = verb.action in kind.table.allowed_actions(view.phase)
        if refusal is None or (refusal.category is Category.INVALID and in_table):
            found.allowed.append(verb)
        elif refusal.category is Category.CONFLICT:
            found.blockers[refusal.message] = None
        elif verb.action in _actions_needing_force(kind, view) and not await _dry_run_refusal(
            client, Request(path=view.path, action=verb.action, force=True)
        ):
            found.forced.append(verb)
    return found


def _actions_needing_force(kind: registry.Kind, view: ObjectView) -> set[str]:
    """Returns the actions that a row allows with force only, of the object or of its members."""
    needed = set(kind.table.actions_needing_force(view.phase))
    for status in view.counts if kind.member else ():
        needed.update(registry.find_kind(str(kind.member)).table.actions_needing_force(status))
    return needed


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
        again += ", paused in Temporal" if activity.paused else ""
        failed = f": {format_one_line(activity.last_failure.message, 200)}" if activity.last_failure.message else ""
        alike[f"{activity.activity_type.name.replace('_', ' ')}{again}{failed}"] += 1
    for what, number in alike.items():
        yield f"{what} ({number} of these)" if number > 1 else what


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%SZ}"
