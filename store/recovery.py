"""Recovery of dead actions: restores their objects, releases their locks, records their outcome."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from domain import registry
from domain.errors import format_one_line
from domain.model import ActionResult, Outcome
from domain.paths import kind_of
from domain.statetable import NONE, RESTORED, Actor, LineEffect, describe_recovery
from domain.wire import object_path_of
from store.dbtime import resolve_write_time
from store.grants import grant_of_action
from store.hooks import NO_HOOKS, HooksByKind
from store.queries import at_or_below_condition, read_aggregated_status
from store.schema import ActionRow, actions, locks, objects
from store.status import ObjectSet
from store.steps import list_locked_paths

_SELECT_UNDER_WAY = (
    sa.select(objects.c.path)
    .where(
        (objects.c.path == sa.bindparam("at_path"))
        | ((objects.c.path > sa.bindparam("first")) & (objects.c.path < sa.bindparam("last"))),
        objects.c.epoch == sa.bindparam("mine"),
        objects.c.target_action != NONE,
    )
    .limit(1)
)
CUT_OFF_MESSAGE = f"the action before was cut off; {RESTORED}, without asking the cloud"


def abandon_run(connection: sa.Connection, hooks: HooksByKind, owner: str, run: str, at: datetime, message: str) -> int:
    """Ends the action of a run that the caller knows to be dead. Returns how many objects were restored."""
    path, at = object_path_of(owner), resolve_write_time(connection, at)
    dead = sa.select(actions).where(actions.c.run == run, actions.c.path == path, actions.c.ended_at.is_(None))
    healed, message = 0, format_one_line(message)
    for action in [ActionRow(*row) for row in connection.execute(dead.with_for_update())]:  # excludes its finish
        healed += restore_objects(connection, action, at, message)
        came_from = grant_of_action(action).came_from
        to = registry.kind_at(path).table.recovery_status(action.action, came_from)
        told = describe_recovery(message, came_from, to)
        outcome = Outcome(
            path=path,
            action=action.action,
            result=ActionResult.FAILED,
            status=read_aggregated_status(connection, path),
            message=f"abandoned: {told}",
        )
        if ended := hooks.get(kind_of(path), NO_HOOKS).on_finish:
            ended(connection, grant_of_action(action), outcome, at)
        connection.execute(
            sa.update(actions)
            .where(actions.c.epoch == action.epoch)
            .values(ended_at=at, outcome=outcome.model_dump(mode="json"))
        )
    connection.execute(sa.delete(locks).where(locks.c.owner == owner, locks.c.run == run))
    return healed


def restore_objects(connection: sa.Connection, action: ActionRow, at: datetime, message: str) -> int:
    """Restores objects that the dead action left under way to the status they came from. Returns how many."""
    owner = registry.workflow_id_of(action.path, action.action)
    paths = []
    for path in dict.fromkeys((action.path, *list_locked_paths(connection, owner, action.run))):  # nothing else changed
        which = {"at_path": path, "first": f"{path}:", "last": f"{path};", "mine": action.epoch}
        if connection.execute(_SELECT_UNDER_WAY, which).first():  # a cheap check before objects are read
            paths.append(path)
    if not paths:
        return 0
    under = sa.or_(*(at_or_below_condition(objects.c.path, path) for path in paths))
    return restore_status(connection, under & (objects.c.epoch == action.epoch), at, message)


def restore_status(connection: sa.Connection, which: sa.ColumnElement[bool], at: datetime, message: str) -> int:
    """Restores the transitional ones of these objects to the status they came from. Returns how many."""
    mine = which & (objects.c.target_action != NONE)
    alike = (objects.c.kind, objects.c.status, objects.c.previous_status, objects.c.target_action)
    healed = 0
    locked = sa.select(*alike).where(mine).order_by(objects.c.path).with_for_update().subquery()
    for kind, status, came_from, doing in connection.execute(sa.select(locked).distinct()).all():
        here = mine & sa.and_(
            *(column == is_ for column, is_ in zip(alike, (kind, status, came_from, doing), strict=True))
        )
        to = registry.find_kind(kind).table.recovery_status(doing, came_from)
        why = describe_recovery(message, came_from, to)
        told = {"at": at, "actor": Actor.CONTROLLER.value, "action": "heal", "to": to, "message": why}
        told["effect"] = LineEffect.ABANDONED.value
        back = {"target_action": NONE, "target_status": NONE, "changed_at": at, "error": why}
        healed += ObjectSet(here).move_objects(connection, {}, told, back)
    return healed
