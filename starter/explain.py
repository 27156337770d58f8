"""`starter explain PATH`: why an object is in its status, what it waits for, what can be done now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from domain import registry
from domain.errors import Category, Refused, one_line
from domain.model import HistoryLine, ObjectView, Request
from domain.paths import short_path
from domain.statetable import LineEffect, Ruling
from starter import reads, terminal
from starter.errors import Exit
from starter.families import REMARKS
from starter.kinds import ObjectArg
from starter.options import required_options
from starter.output import format_time
from starter.session import open_client
from starter.watch import WatchOption, run_and_watch

if TYPE_CHECKING:
    from temporalio.client import WorkflowExecutionDescription

    from client.actions import ActionClient

HISTORY_LINES = 20
MEMBERS_SHOWN = 5


async def explain(path: ObjectArg, /, *, watch: WatchOption = False) -> Exit:
    """Why an object is in its status, what it is waiting for, and what can be done now.

    Example: starter explain default/web
    """
    where = await reads.locate_object(path)
    return await run_and_watch(watch, lambda: _print_explanation(where))


async def _print_explanation(path: str) -> Exit:
    from temporalio.client import WorkflowExecutionStatus

    async with open_client() as client:
        view = await client.read_object(path)
        lines = await client.read_history(path, HISTORY_LINES)
        remarks = REMARKS.get(view.kind)
        newest = await client.newest_run(path)
        run = newest if newest and newest.status is WorkflowExecutionStatus.RUNNING else None
        told = [
            *_explain_last_change(view, lines),
            *(await _explain_running_action(client, path, run) if run else [("running", "nothing")]),
            *_web_ui_row(client, path, newest, "watch it" if run else "see it"),
            *(await remarks(client, view) if remarks else []),
            *await _members_with_errors(client, view),
            *(_commands_meanwhile(path) if run else await _possible_actions(client, view)),
        ]
    terminal.print_data(f"{path} is {view.status}, since {format_time(view.changed_at)}")
    for title, text in told:
        terminal.print_data(terminal.escape_controls(f"{title:10} {terminal.as_typed(text)}"))
    return Exit.DONE


def _explain_last_change(view: ObjectView, lines: list[HistoryLine]) -> list[tuple[str, str]]:
    """Returns the last change: who requested it, and what went wrong."""
    kind = registry.find_kind(view.kind)
    changes = [line for line in lines if line.effect is not LineEffect.IGNORED]
    told = []
    if changes:
        last = changes[-1]
        # A group's result is in the message: its own stored status says nothing about its members.
        over = last.source == last.to or (kind.aggregate and last.to in kind.table.stable_statuses)
        what = "ended" if over else f"took it from {last.source} to {last.to}"
        by = f", asked for by {last.requested_by}" if last.requested_by else ""
        why = f": {last.message}" if last.message else ""
        told.append(("because", f"{last.action} {what}{by}{why}"))
        if last.reason:
            told.append(("", f"reason given: {last.reason}"))
    if view.error:
        told.append(("trouble", view.error))
    ignored = [line for line in lines if line.effect is LineEffect.IGNORED]
    if ignored:
        last = ignored[-1]
        told.append(("ignored", f"{last.actor} said {last.to} at {format_time(last.at)}; {last.message}"))
    return told


async def _explain_running_action(
    client: ActionClient, path: str, run: WorkflowExecutionDescription
) -> list[tuple[str, str]]:
    """Returns the running action, and what it waits for."""
    from client.outcomes import action_of_run

    seen = await client.try_read_progress(path, run.run_id)
    if seen is None:
        since = f"{action_of_run(run)} since {format_time(run.start_time)}"
        return [("running", f"{since}: its workflow does not answer; is a worker there? see: starter doctor")]
    counted = f", {seen.done} of {seen.targets} done, {seen.failed} failed" if seen.targets else ""
    told = [("running", f"{seen.action} since {format_time(run.start_time)}: {seen.step or seen.phase}{counted}")]
    return [*told, *(("waits for", text) for text in _pending_activities(run))]


def _web_ui_row(
    client: ActionClient, path: str, action: WorkflowExecutionDescription | None, word: str
) -> list[tuple[str, str]]:
    """Returns the newest action's URL in the Web UI; empty without an action or a Web UI."""
    link = client.web_ui_url(path, action.run_id) if action else ""
    return [(word, link)] if link else []


def _commands_meanwhile(path: str) -> list[tuple[str, str]]:
    """Returns the commands for an object with a running action: no other action is admitted."""
    wait, end = (f"starter {verb} {short_path(path)}" for verb in ("wait", "cancel"))
    return [("you can", f"wait for it: {wait}; end it: {end}; or take over, with any action and --force")]


def _pending_activities(run: WorkflowExecutionDescription) -> Iterator[str]:
    """Yields the pending activities, grouped by type."""
    alike: Counter[str] = Counter()
    for activity in run.raw_description.pending_activities:
        again = f", attempt {activity.attempt}" if activity.attempt > 1 else ""
        failed = f": {one_line(activity.last_failure.message, 200)}" if activity.last_failure.message else ""
        alike[f"{activity.activity_type.name.replace('_', ' ')}{again}{failed}"] += 1
    for what, number in alike.items():
        yield f"{what} ({number} of these)" if number > 1 else what


async def _members_with_errors(client: ActionClient, view: ObjectView) -> list[tuple[str, str]]:
    """Returns members with an error."""
    member = registry.kind_at(view.path).member
    if member is None:
        return []
    wrong = [view async for view in client.iterate_objects(member, view.path) if view.error]
    told = [("trouble", f"{short_path(view.path)} is {view.status}: {view.error}") for view in wrong[:MEMBERS_SHOWN]]
    return told + ([("", f"and {len(wrong) - MEMBERS_SHOWN} more")] if len(wrong) > MEMBERS_SHOWN else [])


async def _possible_actions(client: ActionClient, view: ObjectView) -> list[tuple[str, str]]:
    """Dry-runs each verb: returns those that begin would admit now, and what blocks the others."""
    kind = registry.find_kind(view.kind)
    allowed: list[registry.Verb] = []
    in_the_way: dict[str, None] = {}
    for verb in (verb for verb in kind.verbs if verb.action in kind.offered_actions):
        refusal = await _dry_run_refusal(client, Request(path=view.path, action=verb.action))
        if refusal is None or (
            refusal.category is Category.INVALID and verb.action in kind.table.allowed_actions(view.phase)
        ):
            allowed.append(verb)  # invalid: it needs options, and nothing more can be checked without them
        elif refusal.category is Category.CONFLICT:
            in_the_way[refusal.message] = None
    told = [("in the way", message) for message in in_the_way]
    if not allowed:
        return [*told, ("you can", f"see what happened: starter history {short_path(view.path)}")]
    words = {verb.action: required_options(verb.spec) if verb.spec else "" for verb in allowed}
    first = next((action for action, more in words.items() if not more), allowed[0].action)
    command = f"starter {view.kind} {first} {short_path(view.path)} {words[first]}".rstrip()
    can = ", ".join(f"{action} {more}".rstrip() for action, more in words.items())
    return [*told, ("you can", f"{can}; such as: {command}")]


async def _dry_run_refusal(client: ActionClient, request: Request) -> Refused | None:
    """Returns the refusal of a dry run, if any. An action with nothing to do counts as refused."""
    try:
        admission = await client.check_request(request)
    except Refused as refused:
        return refused
    if admission.grant and admission.grant.ruling is Ruling.ALREADY:
        return Refused(Category.NOT_ALLOWED, "nothing to do")
    return admission.refusal.to_error() if admission.refusal else None
