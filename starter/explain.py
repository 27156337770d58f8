"""`starter explain PATH`: why is it in this status, what is it waiting for, what can I do now?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from domain import registry, wire
from domain.errors import Category, brief
from domain.model import HistoryLine, HistoryView, ObjectView, Query, Request
from domain.paths import kind_of, short
from starter import reads, terminal
from starter.errors import Exit
from starter.kinds import Target
from starter.session import session

if TYPE_CHECKING:
    from temporalio.client import WorkflowExecutionDescription

    from starter.asking import Asking

LINES = 20
TROUBLED = 5


async def explain(path: Target, /) -> Exit:
    """Why an object is in its status, what it is waiting for, and what can be done now.

    Example: starter explain default/web
    """
    where = await reads.locate(path)
    async with session() as asking:
        view = await asking.read(wire.READ_OBJECT, Query(path=where), ObjectView)
        lines = (await asking.read(wire.READ_HISTORY, Query(path=where, limit=LINES), HistoryView)).lines
        terminal.out(f"{where} is {view.status}, since {_when(view.changed_at)}")
        for part in (_because(view, lines), await _waiting(asking, where), await _troubled(asking, view)):
            for title, text in part:
                terminal.out(f"{title:10} {text}")
        for title, text in await _possible(asking, where):
            terminal.out(f"{title:10} {text}")
    return Exit.DONE


def _because(view: ObjectView, lines: list[HistoryLine]) -> list[tuple[str, str]]:
    """What brought it there: the last change, who wanted it, and what went wrong."""
    changes = [line for line in lines if not line.message.startswith("ignored: ")]
    told = []
    if changes:
        last = changes[-1]
        by = f", asked for by {last.requested_by}" if last.requested_by else ""
        why = f": {last.message}" if last.message else ""
        told.append(("because", f"{last.action} took it from {last.source} to {last.to}{by}{why}"))
        if last.reason:
            told.append(("", f"reason given: {last.reason}"))
    if view.error:
        told.append(("trouble", view.error))
    ignored = [line for line in lines if line.message.startswith("ignored: ")]
    if ignored:
        last = ignored[-1]
        told.append(("ignored", f"{last.actor} said {last.to} at {_when(last.at)}; {last.message}"))
    return told


async def _waiting(asking: Asking, path: str) -> list[tuple[str, str]]:
    """The action that runs on it, and what that one waits for."""
    from temporalio.client import WorkflowExecutionStatus

    run = await asking.running(path)
    if run is None or run.status is not WorkflowExecutionStatus.RUNNING:
        return [("running", "nothing")]
    seen = await asking.progress(path, run.run_id)
    counted = f", {seen.done} of {seen.targets} done, {seen.failed} failed" if seen.targets else ""
    told = [("running", f"{seen.action} since {_when(run.start_time)}: {seen.step or seen.phase}{counted}")]
    told += [("waits for", text) for text in _pending(run)]
    if link := asking.link(path, run.run_id):
        told.append(("watch it", link))
    return told


def _pending(run: WorkflowExecutionDescription) -> Iterator[str]:
    for each in run.raw_description.pending_activities:
        again = f", attempt {each.attempt}" if each.attempt > 1 else ""
        failed = f": {brief(each.last_failure.message, 200)}" if each.last_failure.message else ""
        yield f"{each.activity_type.name}{again}{failed}"


async def _troubled(asking: Asking, view: ObjectView) -> list[tuple[str, str]]:
    """Members that are not well."""
    member = registry.kind_at(view.path).member
    if member is None:
        return []
    wrong = [each async for each in asking.everything(member, view.path) if each.error]
    told = [("trouble", f"{short(each.path)} is {each.status}: {each.error}") for each in wrong[:TROUBLED]]
    return told + ([("", f"and {len(wrong) - TROUBLED} more")] if len(wrong) > TROUBLED else [])


async def _possible(asking: Asking, path: str) -> list[tuple[str, str]]:
    """What could be asked for now, as begin itself would answer; and what stands in the way."""
    allowed: list[str] = []
    in_the_way: dict[str, None] = {}
    for verb in registry.kind(kind_of(path)).verbs:
        if verb.spec is not None:
            continue  # what it takes is not known here
        admission = await asking.check(Request(path=path, action=verb.action))
        if admission.refusal is None:
            allowed.append(verb.action)
        elif admission.refusal.category is Category.CONFLICT:
            in_the_way[admission.refusal.message] = None
    told = [("in the way", message) for message in in_the_way]
    command = terminal.command(f"starter {kind_of(path)} {allowed[0]} {short(path)}") if allowed else ""
    return [*told, ("you can", f"{', '.join(allowed)}; such as: {command}" if allowed else "wait, or see its history")]


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%SZ}"
