"""`starter explain PATH`: why an object is in its status, what it waits for, what can be done now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from domain import registry, wire
from domain.errors import Category, Refused, one_line
from domain.locks import LocksView
from domain.model import HistoryLine, ObjectView, ReadQuery
from domain.paths import parent_of, short_path
from domain.statetable import NONE, LineEffect
from starter import reads, terminal
from starter.errors import Exit
from starter.families import REMARKS
from starter.kinds import ObjectArg
from starter.output import Output, OutputOption, Sheet, format_time, print_sheet
from starter.possible import find_possible_actions
from starter.session import open_client
from starter.watch import WatchOption, run_and_watch

if TYPE_CHECKING:
    from client.actions import ActionClient
    from client.runs import ActionRun

HISTORY_LINES = 20
MEMBERS_SHOWN = 5

Facts = list[tuple[str, str]]  # what a fact is about, and the fact


@dataclass(frozen=True)
class Possibilities:
    """What can be done now: facts to print, and the same for programs: the actions, and a command to begin with."""

    facts: Facts
    actions: list[str] = field(default_factory=list)
    forced: list[str] = field(default_factory=list)
    command: str = ""


async def explain(path: ObjectArg, /, *, watch: WatchOption = False, output: OutputOption = "table") -> Exit:
    """Why an object is in its status, what it is waiting for, and what can be done now.

    Example: starter explain default/web
    """
    where = await reads.locate_object(path)
    return await run_and_watch(watch, lambda: _print_explanation(where, output))


async def _print_explanation(path: str, output: Output) -> Exit:
    async with open_client() as client:
        newest = await client.newest_run(path)
        run = newest if newest and newest.is_open else None
        try:
            view = await client.read_object(path)
        except Refused as refused:
            if refused.category is Category.NOT_FOUND and run and run.describe_stranger():
                raise Refused(
                    refused.category, f"{refused.message}, but {run.describe_obstacle()[0]}", run.describe_obstacle()[1]
                ) from refused
            raise
        lines = await client.read_history(path, HISTORY_LINES)
        remarks = REMARKS.get(view.kind)
        if run:
            can = _possible_meanwhile(path, run)
        elif newest and view.target_action != NONE and not await _find_open_run(client, path):
            can = _possible_after_end(newest)
        else:
            can = await _possible_actions(client, view)
        facts = [
            *_explain_last_change(view, lines),
            *(await _explain_running_action(client, path, run) if run else [("running", "nothing")]),
            *_web_ui_row(client, path, newest, "watch it" if run else "see it"),
            *(await remarks(client, view) if remarks else []),
            *await _members_with_errors(client, view),
            *can.facts,
        ]
    if output == "table":
        terminal.print_data(f"{path} is {view.status}, since {format_time(view.changed_at)}")
        for about, text in facts:
            terminal.print_data(terminal.escape_controls(f"{about:10} {terminal.as_typed(text)}"))
        return Exit.DONE
    data = {
        "path": path,
        "kind": view.kind,
        "status": view.status,
        "changed_at": view.model_dump(mode="json")["changed_at"],
    }
    data["facts"] = [{"about": about, "text": text} for about, text in facts if about and text]
    data |= {"allowed": can.actions, "allowed_with_force": can.forced, "next": can.command or None}
    print_sheet(Sheet(data, (), [], [path]), output)
    return Exit.DONE


def _explain_last_change(view: ObjectView, lines: list[HistoryLine]) -> Facts:
    """Returns the last change: who requested it, and what went wrong."""
    kind = registry.find_kind(view.kind)
    changes = [line for line in lines if line.effect is not LineEffect.IGNORED]
    told = []
    if changes:
        last = changes[-1]
        # A group's result is in the message: its own stored status says nothing about its members.
        over = last.source == last.to or (kind.aggregate and last.to in kind.table.stable_statuses)
        what = "ended" if over else f"took it from {last.source} to {last.to}"
        asked = last.requested_by and any(verb.action == last.action for verb in kind.verbs)  # else it was a report
        by = f", asked for by {last.requested_by}" if asked else f", by the {last.actor}"
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


async def _find_open_run(client: ActionClient, path: str) -> ActionRun | None:
    """Returns the open run that may move this object: its own, that of an object above it, or of a lock's owner."""
    held = (await client.run_query(wire.READ_LOCKS, ReadQuery(path=path), LocksView)).locks
    owners = {path: None, **{lock.owner: None for lock in held if lock.path == path}}
    above = parent_of(path)
    while above:
        owners[above], above = None, parent_of(above)
    for owner in owners:
        if (run := await client.newest_run(owner)) and run.is_open:
            return run
    return None


def _possible_after_end(dead: ActionRun) -> Possibilities:
    """Returns what helps an object whose action's workflow was ended from outside: it could not finish."""
    how = dead.status.name.lower().replace("_", " ")
    cut_off = f"{dead.action}: its workflow was ended from outside ({how}), so it could not finish"
    can = "restore it now: starter heal; a sweep does it within minutes, and so does the next action"
    return Possibilities([("cut off", cut_off), ("you can", can)], command="starter heal")


async def _explain_running_action(client: ActionClient, path: str, run: ActionRun) -> Facts:
    """Returns the running action, and what it waits for."""
    since = f"{run.action} since {format_time(run.start_time)}"
    obstacle, hint = run.describe_obstacle()
    if obstacle:
        return [("running", since), ("stopped", obstacle), ("you can", hint)]
    seen = await client.try_read_progress(path, run.run_id)
    if seen is None:
        return [("running", f"{since}: its workflow does not answer; is a worker there? see: starter doctor")]
    counted = f", {seen.done} of {seen.targets} done, {seen.failed} failed" if seen.targets else ""
    told = [("running", f"{seen.action} since {format_time(run.start_time)}: {seen.step or seen.phase}{counted}")]
    return [*told, *(("waits for", text) for text in _pending_activities(run))]


def _web_ui_row(client: ActionClient, path: str, action: ActionRun | None, word: str) -> Facts:
    """Returns the newest action's URL in the Web UI; empty without an action or a Web UI."""
    link = client.web_ui_url(path, action.run_id) if action else ""
    return [(word, link)] if link else []


def _possible_meanwhile(path: str, run: ActionRun) -> Possibilities:
    """Returns what can be done about an object with a running action: no other action is admitted."""
    if run.describe_obstacle()[0]:  # what helps is told beside it
        return Possibilities([])
    wait, end = (f"starter {verb} {short_path(path)}" for verb in ("wait", "cancel"))
    told = f"wait for it: {wait}; end it: {end}; or take over, with any action and --force"
    return Possibilities([("you can", told)], command=wait)


def _pending_activities(run: ActionRun) -> Iterator[str]:
    """Yields the pending activities, grouped by type."""
    alike: Counter[str] = Counter()
    for activity in run.raw_description.pending_activities:
        again = f", attempt {activity.attempt}" if activity.attempt > 1 else ""
        again += ", paused in Temporal" if activity.paused else ""
        failed = f": {one_line(activity.last_failure.message, 200)}" if activity.last_failure.message else ""
        alike[f"{activity.activity_type.name.replace('_', ' ')}{again}{failed}"] += 1
    for what, number in alike.items():
        yield f"{what} ({number} of these)" if number > 1 else what


async def _members_with_errors(client: ActionClient, view: ObjectView) -> Facts:
    """Returns members with an error."""
    member = registry.kind_at(view.path).member
    if member is None:
        return []
    wrong = [view async for view in client.iterate_objects(member, view.path) if view.error]
    told = [("trouble", f"{short_path(view.path)} is {view.status}: {view.error}") for view in wrong[:MEMBERS_SHOWN]]
    return told + ([("", f"and {len(wrong) - MEMBERS_SHOWN} more")] if len(wrong) > MEMBERS_SHOWN else [])


async def _possible_actions(client: ActionClient, view: ObjectView) -> Possibilities:
    """Returns what would be admitted now, a command to begin with, and what blocks the others."""
    found = await find_possible_actions(client, view)
    facts = [("in the way", message) for message in found.obstacles]
    if not (words := found.options):
        history = f"starter history {short_path(view.path)}"
        return Possibilities([*facts, ("you can", f"see what happened: {history}")], command=history)
    first = next((action for action, more in words.items() if not more), next(iter(words)))
    command = f"starter {view.kind} {first} {short_path(view.path)} {words[first]}".rstrip()
    can = ", ".join(f"{action} {more}".rstrip() for action, more in words.items())
    facts.append(("you can", f"{can}; such as: {command}"))
    allowed, forced = ([verb.action for verb in verbs] for verbs in (found.allowed, found.forced))
    return Possibilities(facts, allowed, forced, command)
