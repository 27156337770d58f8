"""finish: writes the end of an action and releases its locks, in one transaction, exactly once."""

from __future__ import annotations

from collections import defaultdict

import sqlalchemy as sa

from domain import registry
from domain.errors import one_line
from domain.limits import FAILURES_SHOWN
from domain.model import Chunk, Ending, Grant, Landing, Outcome, Result, Step, TargetFailure
from domain.paths import kind_of
from domain.statetable import NONE, Actor, LineEffect, Ruling
from store import waitqueue
from store.grants import stored_grant
from store.history import NO_ROW, history_line, merge_info
from store.hooks import NO_HOOKS, HooksByKind
from store.land import land
from store.queries import shown_status
from store.recovery import restore_objects
from store.rows import read_one
from store.schema import ActionRow, actions, locks, objects
from store.status import ObjectSet, record, set_details
from store.steps import apply_step

UNANSWERED = "no clear answer from the cloud before the action ended"
LEFT = "the action ended and left it under way; restored to its status before"
UNKNOWN = (
    "the store knows nothing of this action: it was restored from an older copy, or the record was removed; "
    "nothing was written; look at the object's present status, then ask again"
)

_ACTION = (
    sa.select(actions)
    .where(
        actions.c.epoch == sa.bindparam("mine"),
        actions.c.run == sa.bindparam("by"),
        actions.c.path == sa.bindparam("at_path"),
    )
    .with_for_update()
)
_ENDED = sa.update(actions).where(actions.c.epoch == sa.bindparam("mine"))
_UNLOCK = sa.delete(locks).where(locks.c.owner == sa.bindparam("owner"), locks.c.run == sa.bindparam("by"))

# Objects of the action that are still under way or that failed.
_OPEN = (
    sa.select(
        *(objects.c.path, objects.c.status, objects.c.previous_status),
        *(objects.c.target_action, objects.c.placement, objects.c.error),
    )
    .where(
        (objects.c.path == sa.bindparam("at_path")) | (objects.c.parent == sa.bindparam("at_path")),
        objects.c.epoch == sa.bindparam("mine"),
        (objects.c.target_action != NONE) | (objects.c.error != ""),
    )
    .order_by(objects.c.path)
    .with_for_update()
)
_KEPT = (
    sa.select(objects.c.status, objects.c.info)
    .where(
        objects.c.path == sa.bindparam("at_path"),
        objects.c.epoch == sa.bindparam("mine"),
        objects.c.target_action != NONE,
    )
    .with_for_update()
)
_ITSELF = ObjectSet(
    objects.c.path == sa.bindparam("at_path"),
    objects.c.epoch == sa.bindparam("mine"),
    objects.c.target_action != NONE,
)


def finish(connection: sa.Connection, hooks: HooksByKind, ending: Ending) -> Outcome:
    """Ends an action. A second call returns the stored outcome; objects that a later action owns stay unchanged."""
    mine = {"mine": ending.epoch, "by": ending.run, "at_path": ending.path}
    action = read_one(ActionRow, connection.execute(_ACTION, mine))
    if action is None:
        return _unknown(connection, ending)
    if action.outcome:
        return Outcome.model_validate(action.outcome)
    grant = stored_grant(action)
    if ending.moves:
        step = Step(path=ending.path, epoch=ending.epoch, at=ending.at, moves=ending.moves)
        apply_step(connection, hooks, step, action)
    failed = _land_the_rest(connection, hooks, grant, ending)
    outcome = _outcome(grant, ending, failed)
    shown = _end_object(connection, grant, ending, outcome)
    hook = hooks.get(kind_of(grant.path), NO_HOOKS)
    if hook.locks or registry.reaches_others(kind_of(grant.path)):
        restore_objects(connection, action, ending.at, ending.message or LEFT)
        shown = ""
    outcome = outcome.model_copy(update={"status": shown or shown_status(connection, ending.path)})
    if hook.ended:
        hook.ended(connection, grant, outcome, ending.at)
        outcome = outcome.model_copy(update={"status": shown_status(connection, ending.path)})
    owner, run = registry.owner_of(ending.path, grant.action), action.run
    followers = waitqueue.waiting_behind(connection, owner, run) if registry.meets_hidden(kind_of(ending.path)) else []
    connection.execute(_UNLOCK, {"owner": owner, "by": run})
    kept = {"mine": ending.epoch, "ended_at": ending.at, "outcome": outcome.model_dump(mode="json")}
    connection.execute(_ENDED, kept)
    return outcome.model_copy(update={"followers": followers})


def _unknown(connection: sa.Connection, ending: Ending) -> Outcome:
    """Returns a failed outcome for an action that is not on record; a retry cannot help."""
    same = (NONE, NONE, ending.epoch, f"ignored: {UNKNOWN}", LineEffect.IGNORED)
    told = history_line(ending.path, ending.at, Actor.CONTROLLER, ending.action, *same)
    record(connection, [told])
    status = shown_status(connection, ending.path)
    return Outcome(path=ending.path, action=ending.action, result=Result.FAILED, status=status, message=UNKNOWN)


def _reason(result: Result, message: str) -> str:
    """Returns result and message in one line, without repeating the result."""
    if message == result or message.startswith(f"{result}; "):
        return one_line(message)
    return one_line(f"{result}: {message}" if message else result.value)


def _land_the_rest(connection: sa.Connection, hooks: HooksByKind, grant: Grant, ending: Ending) -> list[TargetFailure]:
    """Lands the targets that are still transitional as failed. Returns the failures."""
    troubles: list[TargetFailure] = []
    left: defaultdict[tuple[str, str], list[Landing]] = defaultdict(list)
    for path, status, came_from, doing, place, error in connection.execute(_OPEN, _has_own_record(grant)):
        if not place or not registry.is_target(kind_of(path)):
            continue  # not landed as a target; `_end_object` moves it
        if not error:
            status = _failure(path, doing, status, came_from)
            error = f"{UNANSWERED}: {ending.message}" if ending.message else UNANSWERED
            left[place, doing].append(Landing(path, status, error=error))
        troubles.append(TargetFailure(path=path, status=status, error=one_line(error, 200), at=ending.at))
    for (place, doing), landings in left.items():
        ends = {"first": landings[0].path, "last": landings[-1].path, "count": len(landings)}
        chunk = Chunk(epoch=grant.epoch, placement=place, action=doing, **ends)
        land(connection, hooks, chunk, landings, ending.at)
    return troubles


def _failure(path: str, action: str, status: str, came_from: str) -> str:
    rows = [row for row in registry.kind_at(path).table.rows if row.action == action and row.during == status]
    own = [row for row in rows if row.source == came_from]  # empty if force began in a status that no row names
    return (own or rows)[0].failure_status(came_from)


def _outcome(grant: Grant, ending: Ending, troubles: list[TargetFailure]) -> Outcome:
    """Builds the outcome; the counts come from the stored rows, not from the workflow."""
    failed = len(troubles) + ending.lost
    result = ending.result
    if grant.targets and result is not Result.CANCELLED and not ending.failed:
        result = Result.SUCCEEDED if not failed else Result.PARTIAL if failed < grant.targets else Result.FAILED
    return Outcome(
        path=grant.path,
        action=grant.action,
        result=result,
        status="",
        done=grant.targets - failed,
        failed=failed,
        skipped=grant.skipped,
        troubles=[*ending.troubles, *troubles][:FAILURES_SHOWN],
        message=ending.message,
    )


def _end_object(connection: sa.Connection, grant: Grant, ending: Ending, outcome: Outcome) -> str:
    """Moves the object itself to its row's *then* or *else* status, unless it was landed as a target.

    Returns a group's shown status, which its history line names too; else an empty string.
    """
    kind = registry.kind_at(grant.path)
    if grant.action in kind.table.hidden_actions:
        _record_hidden_work(connection, grant, ending, outcome)
        return ""
    good = outcome.result is Result.SUCCEEDED or (outcome.result is Result.PARTIAL and grant.then != NONE)
    kept = connection.execute(_KEPT, _has_own_record(grant)).one_or_none()
    if kept is None:
        return ""
    to = grant.then if good else _failure(grant.path, grant.action, grant.during, grant.came_from)
    reason = _reason(outcome.result, ending.message)
    if ending.to and not _may_end(grant, kept.status, ending.to):
        reason = one_line(f"{NO_ROW}: {ending.to}; {reason}")
    elif ending.to:
        to = ending.to
    rest = {"target_action": NONE, "target_status": NONE, "changed_at": ending.at}
    told = rest | {"status": to, "error": "" if good else reason}
    if ending.info is not None:
        told["info"] = merge_info(kept.info, ending.info)
    if ending.spec is not None:
        told["spec"] = ending.spec
    _ITSELF.change(connection, _has_own_record(grant), told)
    shown = shown_status(connection, grant.path) if kind.aggregate and to != NONE else ""
    if shown not in ("", to):
        reason = one_line(f"{reason}; {kind.table.label} is {shown}")
    effect = LineEffect.APPLIED if good else LineEffect.ABANDONED
    change = (kept.status, to, grant.epoch, reason, effect)
    end = history_line(grant.path, ending.at, Actor.CONTROLLER, grant.action, *change)
    record(connection, [end])
    return shown


def _record_hidden_work(connection: sa.Connection, grant: Grant, ending: Ending, outcome: Outcome) -> None:
    """Records the end of a hidden action: info and a history line, and no status."""
    which = objects.c.path == grant.path
    kept = connection.execute(sa.select(objects.c.status, objects.c.info).where(which).with_for_update()).one_or_none()
    if kept is None:
        return
    if ending.info is not None:
        set_details(connection, grant.path, info=merge_info(kept.info, ending.info))
    reason = _reason(outcome.result, ending.message)
    same = (kept.status, kept.status)
    told = history_line(grant.path, ending.at, Actor.CONTROLLER, grant.action, *same, grant.epoch, reason)
    record(connection, [told])


def _may_end(grant: Grant, status: str, to: str) -> bool:
    """Tells whether the action may end in another status than its row names: by a landing row or by a step."""
    table = registry.kind_at(grant.path).table
    landing = table.landing_row(grant.action, grant.during, grant.came_from, to)
    return landing is not None or table.judge_step(status, to, Actor.CONTROLLER).ruling is not Ruling.REFUSED


def _has_own_record(grant: Grant) -> dict[str, object]:
    return {"at_path": grant.path, "mine": grant.epoch}
