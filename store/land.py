"""Reads the targets of an action and lands them, in bulk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.errors import format_one_line
from domain.model import Chunk, Target, TargetLanding
from domain.statetable import NONE, Actor, LineEffect
from store.dbtime import resolve_write_time
from store.history import NO_ROW_MESSAGE, NOT_OWNED_MESSAGE, history_line
from store.hooks import NO_HOOKS, HooksByKind
from store.schema import objects
from store.status import ObjectSet, record_ignored_lines

_SELECT_TARGETS = (
    sa.select(objects.c.path, objects.c.status, objects.c.previous_status, objects.c.spec, objects.c.info)
    .where(
        objects.c.path.between(sa.bindparam("first"), sa.bindparam("last")),
        objects.c.kind == sa.bindparam("kind"),
        objects.c.placement == sa.bindparam("place"),
        objects.c.epoch == sa.bindparam("mine"),
        objects.c.status.in_(sa.bindparam("transitional", expanding=True)),
    )
    .order_by(objects.c.path)
)
_IS_NAMED_AND_OWNED = (
    objects.c.path.in_(sa.bindparam("names", expanding=True)),
    objects.c.epoch == sa.bindparam("mine"),
)
_LOCK_OWNED = (
    sa.select(objects.c.path, objects.c.status, objects.c.previous_status)
    .where(*_IS_NAMED_AND_OWNED)
    .order_by(objects.c.path)
    .with_for_update()
)
_LOCKED_TARGETS = _LOCK_OWNED.subquery()  # locked before they are counted
_COUNT_BY_STATUS = sa.select(_LOCKED_TARGETS.c.status, _LOCKED_TARGETS.c.previous_status, sa.func.count()).group_by(
    _LOCKED_TARGETS.c.status, _LOCKED_TARGETS.c.previous_status
)
IS_ALIKE = (  # targets of one action in one status
    *_IS_NAMED_AND_OWNED,
    objects.c.status == sa.bindparam("now"),
    objects.c.previous_status == sa.bindparam("came_from"),
)
_TARGETS_ALIKE = ObjectSet(*IS_ALIKE)
_ONE_TARGET = ObjectSet(objects.c.path == sa.bindparam("name"), objects.c.epoch == sa.bindparam("mine"))


def list_targets(connection: sa.Connection, chunk: Chunk) -> list[Target]:
    """Returns the targets of a chunk that are still transitional; a retried activity gets only those."""
    table = registry.kind_at(chunk.first).table
    which = {
        "first": chunk.first,
        "last": chunk.last,
        "kind": table.kind,
        "place": chunk.placement,
        "mine": chunk.epoch,
        "transitional": table.transitional_statuses,
    }
    return list(map(Target._make, connection.execute(_SELECT_TARGETS, which)))


def land_targets(
    connection: sa.Connection, hooks: HooksByKind, chunk: Chunk, landings: Sequence[TargetLanding], at: datetime
) -> int:
    """Writes the statuses that targets reached, by compare and set: same epoch, and a row that leads there. Returns how
    many."""
    at = resolve_write_time(connection, at)
    plain: defaultdict[str, list[str]] = defaultdict(list)
    telling: list[TargetLanding] = []
    for landing in landings:
        if landing.error or landing.info is not None:
            telling.append(landing)
        else:
            plain[landing.status].append(landing.path)
    landed = sum(_land_in_bulk(connection, hooks, chunk, to, names, at) for to, names in plain.items())
    return landed + (_land_individually(connection, chunk, telling, at) if telling else 0)


def _land_in_bulk(
    connection: sa.Connection, hooks: HooksByKind, chunk: Chunk, to: str, names: list[str], at: datetime
) -> int:
    """Lands targets that reach one status without error or info, with a few statements for any number of them."""
    table = registry.kind_at(chunk.first).table
    mine = {"names": names, "mine": chunk.epoch}
    groups = connection.execute(_COUNT_BY_STATUS, mine).all()
    if sum(count for _, _, count in groups) < len(names):
        owned = _lock_owned_targets(connection, names, chunk.epoch)
        _record_ignored(connection, chunk, [TargetLanding(name, to) for name in names if name not in owned], at)
    landed = 0
    for status, came_from, count in groups:
        if status not in table.transitional_statuses:
            continue  # already landed by an earlier attempt
        here = mine | {"now": status, "came_from": came_from}
        legal = table.can_land(chunk.action, status, came_from, to)
        if not legal:
            owned = _lock_owned_targets(connection, names, chunk.epoch)
            alike = [TargetLanding(name, to) for name, was in owned.items() if was == (status, came_from)]
            _record_ignored(connection, chunk, alike, at, status, NO_ROW_MESSAGE)
            continue
        told = {"at": at, "actor": Actor.CLOUD.value, "action": chunk.action, "to": to}
        if to == NONE and (gone := hooks.get(table.kind, NO_HOOKS).before_removal):
            gone(connection, here, at)
        changed = _TARGETS_ALIKE.move_objects(connection, here, told, _columns_at_rest(at))
        if changed != count:  # a bug, as their rows are locked
            raise RuntimeError(f"{changed} of {count} targets land on {to}")
        landed += count
    return landed


def _land_individually(connection: sa.Connection, chunk: Chunk, landings: list[TargetLanding], at: datetime) -> int:
    """Lands targets that each have an error or info of their own, with one prepared statement."""
    table = registry.kind_at(chunk.first).table
    owned = _lock_owned_targets(connection, [landing.path for landing in landings], chunk.epoch)
    _record_ignored(connection, chunk, [landing for landing in landings if landing.path not in owned], at)
    changes: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for landing in landings:
        status, came_from = owned.get(landing.path, (NONE, NONE))
        if status not in table.transitional_statuses:
            continue  # not owned, or already landed by an earlier attempt
        legal = table.can_land(chunk.action, status, came_from, landing.status)
        if not legal:
            _record_ignored(connection, chunk, [landing], at, status, NO_ROW_MESSAGE)
            continue
        same = (landing.path, at, Actor.CLOUD, chunk.action)
        lines.append(history_line(*same, status, landing.status, chunk.epoch, landing.error))
        news = {"status": landing.status, "error": format_one_line(landing.error)}
        changes.append({"name": landing.path, "mine": chunk.epoch, **news, **_columns_at_rest(at)})
        if landing.info is not None:
            changes[-1]["info"] = landing.info
    _ONE_TARGET.change_each_object(connection, changes, lines)
    return len(changes)


def _record_ignored(
    connection: sa.Connection,
    chunk: Chunk,
    landings: list[TargetLanding],
    at: datetime,
    source: str = NONE,
    why: str = NOT_OWNED_MESSAGE,
) -> None:
    """Records landings that change nothing: of objects that the action no longer owns, or where no row leads."""
    same, end = (at, Actor.CLOUD, chunk.action, source), (chunk.epoch, why, LineEffect.IGNORED)
    lines = [history_line(landing.path, *same, landing.status, *end) for landing in landings]
    record_ignored_lines(connection, lines)


def _columns_at_rest(at: datetime) -> dict[str, Any]:
    return {"target_action": NONE, "target_status": NONE, "changed_at": at}


def _lock_owned_targets(connection: sa.Connection, names: list[str], epoch: int) -> dict[str, tuple[str, str]]:
    """Locks the objects that the action still owns. Returns their status and previous status, by path."""
    rows = connection.execute(_LOCK_OWNED, {"names": names, "mine": epoch})
    return {path: (status, came_from) for path, status, came_from in rows}
