"""`starter explain PATH`: why an object is in its status, what it waits for, what can be done now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from domain import registry
from domain.errors import Category, Refused, one_line
from domain.model import HistoryLine, ObjectView, Request
from domain.paths import short
from domain.statetable import LineEffect, Ruling
from starter import reads, terminal
from starter.errors import Exit
from starter.families import REMARKS
from starter.kinds import ObjectArg
from starter.options import wanted
from starter.output import when
from starter.session import session
from starter.watching import WatchOption, watching

if TYPE_CHECKING:
    from temporalio.client import WorkflowExecutionDescription

    from client.actions import ActionClient

LINES = 20
TROUBLED = 5


async def explain(path: ObjectArg, /, *, watch: WatchOption = False) -> Exit:
    """Why an object is in its status, what it is waiting for, and what can be done now.

    Example: starter explain default/web
    """
    where = await reads.locate(path)
    return await watching(watch, lambda: _explain(where))


async def _explain(path: str) -> Exit:
    from temporalio.client import WorkflowExecutionStatus

    async with session() as asking:
        view = await asking.get(path)
        lines = await asking.history(path, LINES)
        remarks = REMARKS.get(view.kind)
        newest = await asking.newest(path)
        run = newest if newest and newest.status is WorkflowExecutionStatus.RUNNING else None
        told = [
            *_because(view, lines),
            *(await _waiting(asking, path, run) if run else [("running", "nothing")]),
            *_linked(asking, path, newest, "watch it" if run else "see it"),
            *(await remarks(asking, view) if remarks else []),
            *await _troubled(asking, view),
            *(_meanwhile(path) if run else await _possible(asking, view)),
        ]
    terminal.out(f"{path} is {view.status}, since {when(view.changed_at)}")
    for title, text in told:
        terminal.out(terminal.clean(f"{title:10} {terminal.command(text)}"))
    return Exit.DONE


def _because(view: ObjectView, lines: list[HistoryLine]) -> list[tuple[str, str]]:
    """Returns the last change: who requested it, and what went wrong."""
    kind = registry.kind(view.kind)
    changes = [line for line in lines if line.effect is not LineEffect.IGNORED]
    told = []
    if changes:
        last = changes[-1]
        # A group's result is in the message: its own stored status says nothing about its members.
        over = last.source == last.to or (kind.aggregate and last.to in kind.table.stable)
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
        told.append(("ignored", f"{last.actor} said {last.to} at {when(last.at)}; {last.message}"))
    return told


async def _waiting(asking: ActionClient, path: str, run: WorkflowExecutionDescription) -> list[tuple[str, str]]:
    """Returns the running action, and what it waits for."""
    from client.outcomes import action_of

    seen = await asking.glimpse(path, run.run_id)
    if seen is None:
        since = f"{action_of(run)} since {when(run.start_time)}"
        return [("running", f"{since}: its workflow does not answer; is a worker there? see: starter doctor")]
    counted = f", {seen.done} of {seen.targets} done, {seen.failed} failed" if seen.targets else ""
    told = [("running", f"{seen.action} since {when(run.start_time)}: {seen.step or seen.phase}{counted}")]
    return [*told, *(("waits for", text) for text in _pending(run))]


def _linked(
    asking: ActionClient, path: str, action: WorkflowExecutionDescription | None, word: str
) -> list[tuple[str, str]]:
    """Returns the newest action's URL in the Web UI; empty without an action or a Web UI."""
    link = asking.link(path, action.run_id) if action else ""
    return [(word, link)] if link else []


def _meanwhile(path: str) -> list[tuple[str, str]]:
    """Returns the commands for an object with a running action: no other action is admitted."""
    wait, end = (f"starter {verb} {short(path)}" for verb in ("wait", "cancel"))
    return [("you can", f"wait for it: {wait}; end it: {end}; or take over, with any action and --force")]


def _pending(run: WorkflowExecutionDescription) -> Iterator[str]:
    """Yields the pending activities, grouped by type."""
    alike: Counter[str] = Counter()
    for each in run.raw_description.pending_activities:
        again = f", attempt {each.attempt}" if each.attempt > 1 else ""
        failed = f": {one_line(each.last_failure.message, 200)}" if each.last_failure.message else ""
        alike[f"{each.activity_type.name.replace('_', ' ')}{again}{failed}"] += 1
    for what, number in alike.items():
        yield f"{what} ({number} of these)" if number > 1 else what


async def _troubled(asking: ActionClient, view: ObjectView) -> list[tuple[str, str]]:
    """Returns members with an error."""
    member = registry.kind_at(view.path).member
    if member is None:
        return []
    wrong = [each async for each in asking.everything(member, view.path) if each.error]
    told = [("trouble", f"{short(each.path)} is {each.status}: {each.error}") for each in wrong[:TROUBLED]]
    return told + ([("", f"and {len(wrong) - TROUBLED} more")] if len(wrong) > TROUBLED else [])


async def _possible(asking: ActionClient, view: ObjectView) -> list[tuple[str, str]]:
    """Dry-runs each verb: returns those that begin would admit now, and what blocks the others."""
    kind = registry.kind(view.kind)
    allowed: list[registry.Verb] = []
    in_the_way: dict[str, None] = {}
    for verb in (verb for verb in kind.verbs if verb.action in kind.offered):
        refusal = await _refusal(asking, Request(path=view.path, action=verb.action))
        if refusal is None or (refusal.category is Category.INVALID and verb.action in kind.table.allowed(view.phase)):
            allowed.append(verb)  # invalid: it needs options, and nothing more can be checked without them
        elif refusal.category is Category.CONFLICT:
            in_the_way[refusal.message] = None
    told = [("in the way", message) for message in in_the_way]
    if not allowed:
        return [*told, ("you can", f"see what happened: starter history {short(view.path)}")]
    words = {verb.action: wanted(verb.spec) if verb.spec else "" for verb in allowed}
    first = next((action for action, more in words.items() if not more), allowed[0].action)
    command = f"starter {view.kind} {first} {short(view.path)} {words[first]}".rstrip()
    can = ", ".join(f"{action} {more}".rstrip() for action, more in words.items())
    return [*told, ("you can", f"{can}; such as: {command}")]


async def _refusal(asking: ActionClient, request: Request) -> Refused | None:
    """Returns the refusal of a dry run, if any. An action with nothing to do counts as refused."""
    try:
        admission = await asking.check(request)
    except Refused as refused:
        return refused
    if admission.grant and admission.grant.ruling is Ruling.ALREADY:
        return Refused(Category.NOT_ALLOWED, "nothing to do")
    return admission.refusal.error() if admission.refusal else None
