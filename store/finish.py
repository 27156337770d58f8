"""finish: writes the end of an action and releases its locks, in one transaction, exactly once."""

from __future__ import annotations

from collections import defaultdict

import sqlalchemy as sa

from domain import registry
from domain.errors import format_one_line
from domain.limits import FAILURES_SHOWN
from domain.model import ActionEnding, ActionResult, Chunk, Grant, Outcome, Step, TargetFailure, TargetLanding
from domain.paths import kind_of
from domain.statetable import NONE, RESTORED, Actor, LineEffect, Ruling
from store import waitqueue
from store.grants import grant_of_action
from store.history import NO_ROW_MESSAGE, history_line, merge_info
from store.hooks import NO_HOOKS, HooksByKind
from store.land import land_targets
from store.once import mark_done
from store.queries import read_aggregated_status
from store.recovery import restore_objects
from store.schema import actions, locks, objects
from store.status import ObjectSet, record_lines, update_object_columns
from store.steps import apply_step, lock_action

UNANSWERED_MESSAGE = "no clear answer from the cloud before the action ended"
LEFT_OVER_MESSAGE = f"the action ended and left it under way; {RESTORED}"
UNKNOWN_ACTION_MESSAGE = (
    "the store knows nothing of this action: it was restored from an older copy, or the record was removed; "
    "nothing was written; look at the object's present status, then ask again"
)

_END_ACTION = sa.update(actions).where(actions.c.epoch == sa.bindparam("mine"))
_DELETE_LOCKS = sa.delete(locks).where(locks.c.owner == sa.bindparam("owner"), locks.c.run == sa.bindparam("by"))

# Objects of the action that are still under way or that failed.
_SELECT_UNFINISHED = (
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
_IS_OWN_UNDER_WAY = (
    objects.c.path == sa.bindparam("at_path"),
    objects.c.epoch == sa.bindparam("mine"),
    objects.c.target_action != NONE,
)
_LOCK_OBJECT_UNDER_WAY = sa.select(objects.c.status, objects.c.info).where(*_IS_OWN_UNDER_WAY).with_for_update()
_OBJECT_ITSELF = ObjectSet(*_IS_OWN_UNDER_WAY)


def finish_action(connection: sa.Connection, hooks: HooksByKind, ending: ActionEnding) -> Outcome:
    """Ends an action. A second call returns the stored outcome; objects that a later action owns stay unchanged."""
    action = lock_action(connection, ending.epoch)
    if action is None or (action.run, action.path) != (ending.run, ending.path):
        return _outcome_of_unknown_action(connection, ending)
    if action.outcome:
        return Outcome.model_validate(action.outcome)
    grant = grant_of_action(action)
    if ending.moves:
        step = Step(path=ending.path, epoch=ending.epoch, at=ending.at, moves=ending.moves)
        apply_step(connection, hooks, step, action)
    failed = _land_remaining_targets(connection, hooks, grant, ending)
    outcome = _build_outcome(grant, ending, failed)
    shown = _write_final_status(connection, grant, ending, outcome)
    hook = hooks.get(kind_of(grant.path), NO_HOOKS)
    may_change_others = bool(hook.extra_locks) or registry.can_move_descendants(kind_of(grant.path))
    if may_change_others and restore_objects(connection, action, ending.at, ending.message or LEFT_OVER_MESSAGE):
        shown = ""  # read again: members were restored
    outcome = outcome.model_copy(update={"status": shown or read_aggregated_status(connection, ending.path)})
    if hook.on_finish:
        hook.on_finish(connection, grant, outcome, ending.at)
        outcome = outcome.model_copy(update={"status": read_aggregated_status(connection, ending.path)})
    owner, run = registry.workflow_id_of(ending.path, grant.action), action.run
    followers = (
        waitqueue.list_waiting_behind(connection, owner, run)
        if registry.kind_can_meet_hidden_action(kind_of(ending.path))
        else []
    )
    connection.execute(_DELETE_LOCKS, {"owner": owner, "by": run})
    kept = {"mine": ending.epoch, "ended_at": ending.at, "outcome": outcome.model_dump(mode="json")}
    connection.execute(_END_ACTION, kept)
    return outcome.model_copy(update={"followers": followers})


def _outcome_of_unknown_action(connection: sa.Connection, ending: ActionEnding) -> Outcome:
    """Returns a failed outcome for an action that is not on record; a retry cannot help."""
    same = (NONE, NONE, ending.epoch, f"ignored: {UNKNOWN_ACTION_MESSAGE}", LineEffect.IGNORED)
    told = history_line(ending.path, ending.at, Actor.CONTROLLER, ending.action, *same)
    if mark_done(connection, f"finish {ending.run}"):
        record_lines(connection, [told])
    status = read_aggregated_status(connection, ending.path)
    return Outcome(
        path=ending.path,
        action=ending.action,
        result=ActionResult.FAILED,
        status=status,
        message=UNKNOWN_ACTION_MESSAGE,
    )


def _ending_message(result: ActionResult, message: str) -> str:
    """Returns result and message in one line, without repeating the result."""
    if message == result or message.startswith(f"{result}; "):
        return format_one_line(message)
    return format_one_line(f"{result}: {message}" if message else result.value)


def _land_remaining_targets(
    connection: sa.Connection, hooks: HooksByKind, grant: Grant, ending: ActionEnding
) -> list[TargetFailure]:
    """Lands the targets that are still transitional as failed. Returns the failures."""
    troubles: list[TargetFailure] = []
    left: defaultdict[tuple[str, str], list[TargetLanding]] = defaultdict(list)
    for path, status, came_from, doing, place, error in connection.execute(
        _SELECT_UNFINISHED, _object_parameters(grant)
    ):
        if not place or not registry.is_member_kind(kind_of(path)):
            continue  # not landed as a target; `_write_final_status` moves it
        if not error:
            status = _failure_status(path, doing, status, came_from)
            error = f"{UNANSWERED_MESSAGE}: {ending.message}" if ending.message else UNANSWERED_MESSAGE
            left[place, doing].append(TargetLanding(path, status, error=error))
        troubles.append(TargetFailure(path=path, status=status, error=format_one_line(error, 200), at=ending.at))
    for (place, doing), landings in left.items():
        ends = {"first": landings[0].path, "last": landings[-1].path, "count": len(landings)}
        chunk = Chunk(epoch=grant.epoch, placement=place, action=doing, **ends)
        land_targets(connection, hooks, chunk, landings, ending.at)
    return troubles


def _failure_status(path: str, action: str, status: str, came_from: str) -> str:
    rows = [row for row in registry.kind_at(path).table.rows if row.action == action and row.during == status]
    own = [row for row in rows if row.source == came_from]  # empty if force began in a status that no row names
    return (own or rows)[0].failure_status(came_from)


def _build_outcome(grant: Grant, ending: ActionEnding, troubles: list[TargetFailure]) -> Outcome:
    """Builds the outcome; the counts come from the stored rows, not from the workflow."""
    failed = len(troubles) + ending.lost
    result = ending.result
    if grant.targets and result is not ActionResult.CANCELLED and not ending.failed:
        result = (
            ActionResult.SUCCEEDED
            if not failed
            else ActionResult.PARTIAL
            if failed < grant.targets
            else ActionResult.FAILED
        )
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


def _write_final_status(connection: sa.Connection, grant: Grant, ending: ActionEnding, outcome: Outcome) -> str:
    """Moves the object itself to its row's *then* or *else* status, unless it was landed as a target.

    Returns a group's shown status, which its history line names too; else an empty string.
    """
    kind = registry.kind_at(grant.path)
    if grant.action in kind.table.hidden_actions:
        _record_hidden_action_end(connection, grant, ending, outcome)
        return ""
    good = outcome.result is ActionResult.SUCCEEDED or (outcome.result is ActionResult.PARTIAL and grant.then != NONE)
    row = connection.execute(_LOCK_OBJECT_UNDER_WAY, _object_parameters(grant)).one_or_none()
    if row is None:
        return ""
    to = grant.then if good else _failure_status(grant.path, grant.action, grant.during, grant.came_from)
    reason = _ending_message(outcome.result, ending.message)
    if ending.to and not _may_end_in(grant, row.status, ending.to):
        reason = format_one_line(f"{NO_ROW_MESSAGE}: {ending.to}; {reason}")
    elif ending.to:
        to = ending.to
    rest = {"target_action": NONE, "target_status": NONE, "changed_at": ending.at}
    told = rest | {"status": to, "error": "" if good else reason}
    if ending.info is not None:
        told["info"] = merge_info(row.info, ending.info)
    if ending.spec is not None:
        told["spec"] = ending.spec
    _OBJECT_ITSELF.change_objects(connection, _object_parameters(grant), told)
    shown = read_aggregated_status(connection, grant.path) if kind.aggregate and to != NONE else ""
    if shown not in ("", to):
        reason = format_one_line(f"{reason}; {kind.table.label} is {shown}")
    effect = LineEffect.APPLIED if good else LineEffect.ABANDONED
    change = (row.status, to, grant.epoch, reason, effect)
    end = history_line(grant.path, ending.at, Actor.CONTROLLER, grant.action, *change)
    record_lines(connection, [end])
    return shown


def _record_hidden_action_end(connection: sa.Connection, grant: Grant, ending: ActionEnding, outcome: Outcome) -> None:
    """Records the end of a hidden action: info and a history line, and no status."""
    which = objects.c.path == grant.path
    row = connection.execute(sa.select(objects.c.status, objects.c.info).where(which).with_for_update()).one_or_none()
    if row is None:
        return
    if ending.info is not None:
        update_object_columns(connection, grant.path, info=merge_info(row.info, ending.info))
    reason = _ending_message(outcome.result, ending.message)
    same = (row.status, row.status)
    told = history_line(grant.path, ending.at, Actor.CONTROLLER, grant.action, *same, grant.epoch, reason)
    record_lines(connection, [told])


def _may_end_in(grant: Grant, status: str, to: str) -> bool:
    """Tells whether the action may end in another status than its row names: by a landing row or by a step."""
    table = registry.kind_at(grant.path).table
    landing = table.find_ending_row(grant.action, grant.during, grant.came_from, to)
    return landing is not None or table.judge_step(status, to, Actor.CONTROLLER).ruling is not Ruling.REFUSED


def _object_parameters(grant: Grant) -> dict[str, object]:
    return {"at_path": grant.path, "mine": grant.epoch}
