"""Read-only queries of the inventory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.actionview import ActionView
from domain.errors import Category, Refused
from domain.locks import HeldLock, LockMode
from domain.model import HistoryLine, ObjectView, Outcome, PlacementCounts, TargetFailure, TreeView
from domain.paths import check_path, is_at_or_below
from domain.statetable import NONE, Actor, LineEffect
from store.rows import find_object, find_objects
from store.schema import LockRow, ObjectRow, actions, history, locks, objects

MAX_MEMBERS = 20_000
MAX_LINES = 1_000

_SELECT_STATUS = sa.select(objects.c.kind, objects.c.status).where(objects.c.path == sa.bindparam("at_path"))
_COUNT_MEMBERS = (
    sa.select(objects.c.parent, objects.c.status, sa.func.count())
    .where(objects.c.parent.in_(sa.bindparam("groups", expanding=True)))
    .group_by(objects.c.parent, objects.c.status)
)


_SELECT_OPEN_ACTION = sa.select(actions.c.path).where(
    actions.c.epoch == sa.bindparam("number"), actions.c.ended_at.is_(None)
)
_GROUPS = objects.alias("groups")
_COUNT_OBJECTS_BELOW = (
    sa.select(_GROUPS.c.path, objects.c.status, sa.func.count())
    .join(
        objects,
        (objects.c.kind == sa.bindparam("counted"))
        & (objects.c.path > _GROUPS.c.path + ":")
        & (objects.c.path < _GROUPS.c.path + ";"),
    )
    .where(_GROUPS.c.path.in_(sa.bindparam("groups", expanding=True)))
    .group_by(_GROUPS.c.path, objects.c.status)
)


def read_object(connection: sa.Connection, path: str, members: bool = False) -> ObjectView:
    """Returns one object, with its members if asked for."""
    table = registry.kind_at(path).table
    row = find_object(connection, path)
    if row is None:
        hint = f"see what there is: starter list {table.kind}"
        raise Refused(Category.NOT_FOUND, f"there is no such {table.label}: {path}", hint)
    view = _object_views(connection, [row])[0]
    return view.model_copy(update={"members": _read_members(connection, path)}) if members else view


def read_objects(connection: sa.Connection, paths: Sequence[str]) -> dict[str, ObjectView]:
    """Returns the objects that exist at these paths, by path."""
    return {view.path: view for view in _object_views(connection, find_objects(connection, paths))}


_COUNT_BY_PLACE = (
    sa.select(objects.c.placement, objects.c.status, sa.func.count())
    .where(objects.c.parent == sa.bindparam("at_path"))
    .group_by(objects.c.placement, objects.c.status)
    .order_by(objects.c.placement, objects.c.status)
)
_SELECT_ERRORS = (
    sa.select(objects.c.path, objects.c.status, objects.c.error, objects.c.changed_at.label("at"))
    .where(objects.c.parent == sa.bindparam("at_path"), objects.c.error != "")
    .order_by(objects.c.path)
    .limit(sa.bindparam("most"))
)


def read_tree(connection: sa.Connection, path: str, troubles: int) -> TreeView:
    """Returns a group with its members counted by place, in a fixed number of statements."""
    view = read_object(connection, path, members=False)
    places: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for placement, status, number in connection.execute(_COUNT_BY_PLACE, {"at_path": path}):
        places[placement][status] = number
    wrong = connection.execute(_SELECT_ERRORS, {"at_path": path, "most": troubles})
    return TreeView(
        object=view,
        places=[PlacementCounts(placement=place, counts=counts) for place, counts in places.items()],
        troubles=[TargetFailure(path=path, status=status, error=error, at=at) for path, status, error, at in wrong],
    )


def read_outcome(connection: sa.Connection, run: str) -> Outcome:
    """Returns the stored outcome of a run's action."""
    found = connection.execute(sa.select(actions.c.outcome).where(actions.c.run == run)).scalar_one_or_none()
    if found is None:
        raise Refused(
            Category.NOT_FOUND, f"no action of run {run} has ended", "see what happened: starter history PATH"
        )
    return Outcome.model_validate(found)


def is_action_open(connection: sa.Connection, path: str, epoch: int) -> bool:
    """Tells whether the action with this epoch, on the path or above it, is still open."""
    acted_on = connection.execute(_SELECT_OPEN_ACTION, {"number": epoch}).scalar_one_or_none()
    return acted_on is not None and is_at_or_below(path, acted_on)


_SELECT_OF_KIND = (
    sa.select(objects)
    .where(objects.c.kind == sa.bindparam("kind"), objects.c.path > sa.bindparam("after"))
    .order_by(objects.c.path)
    .limit(sa.bindparam("most"))
)
_SELECT_OF_KIND_BELOW = _SELECT_OF_KIND.where(objects.c.path < sa.bindparam("end"))
_SELECT_ITSELF = sa.select(objects).where(
    objects.c.path == sa.bindparam("at_path"),
    objects.c.kind == sa.bindparam("kind"),
    objects.c.path > sa.bindparam("after"),
)


def list_objects(
    connection: sa.Connection, kind: str, prefix: str = "", after: str = "", limit: int = 100
) -> list[ObjectView]:
    """Returns a page of objects of a kind at or below a path, ordered by path."""
    registry.find_kind(kind)
    if after:
        check_path(after)
    if not prefix:
        first = {"kind": kind, "after": after, "most": limit}
        return _object_views(connection, [ObjectRow(*row) for row in connection.execute(_SELECT_OF_KIND, first)])
    # Two index ranges, one after the other: with OR the whole index would be read.
    check_path(prefix)
    itself = [
        ObjectRow(*row) for row in connection.execute(_SELECT_ITSELF, {"kind": kind, "at_path": prefix, "after": after})
    ]
    start = {"kind": kind, "after": max(after, f"{prefix}:"), "end": f"{prefix};", "most": limit - len(itself)}
    return _object_views(
        connection, [*itself, *starmap(ObjectRow, connection.execute(_SELECT_OF_KIND_BELOW, start))][:limit]
    )


def read_history(connection: sa.Connection, path: str, limit: int = 100, after: int = 0) -> list[HistoryLine]:
    """Returns the latest history lines of an object, oldest first; with `after`, the first ones behind that number."""
    query = select_history_lines().where(history.c.path == check_path(path), history.c.seq > after)
    query = query.order_by(history.c.seq if after else history.c.seq.desc()).limit(min(limit, MAX_LINES))
    rows = connection.execute(query).mappings().all()
    lines = [history_line_of_row(row) for row in rows]
    return lines if after else lines[::-1]


def history_line_of_row(row: sa.RowMapping) -> HistoryLine:
    """Converts a row; the one for whom an action was done is named if somebody else requested it.

    Whoever sent what was ignored is not who requested the action: the message names the sender, if anybody is known.
    """
    principal = (row["principal"] or {}).get("name", "")
    told = {name: row[name] or "" for name in HistoryLine.model_fields if name != "on_behalf_of"}
    if (row["actor"], row["effect"]) == (Actor.USER, LineEffect.IGNORED):
        return HistoryLine(**told | {"requested_by": "", "reason": ""})
    return HistoryLine(**told, on_behalf_of=principal if principal != row["requested_by"] else "")


def select_history_lines() -> sa.Select[Any]:
    """Select history lines together with who requested their actions."""
    asked = [actions.c[name] for name in ("requested_by", "reason", "request_id", "run", "principal")]
    joined = sa.outerjoin(history, actions, actions.c.epoch == history.c.epoch)
    return sa.select(history, actions.c.path.label("workflow"), *asked).select_from(joined)


_ACTION_COLUMNS = [actions.c[name] for name in ActionView.model_fields]


def read_last_action(connection: sa.Connection, path: str, hidden_action: str = "") -> ActionView:
    """Returns the last action that was admitted on an object; of a hidden action, its last run."""
    hidden = registry.kind_at(path).table.hidden_actions
    which = actions.c.action == hidden_action if hidden_action else actions.c.action.not_in(hidden)
    query = sa.select(*_ACTION_COLUMNS).where(actions.c.path == path, which)
    query = query.order_by(actions.c.epoch.desc()).limit(1)
    return _read_action_view(connection, query, f"no action on {path} is on record", path)


def read_action(connection: sa.Connection, run: str) -> ActionView:
    """Returns the action that a run carries out, with its outcome once it has ended."""
    query = sa.select(*_ACTION_COLUMNS).where(actions.c.run == run)
    return _read_action_view(connection, query, f"there is no action of run {run[:100]}", "PATH")


def _read_action_view(connection: sa.Connection, query: sa.Select[Any], absent: str, path: str) -> ActionView:
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise Refused(Category.NOT_FOUND, absent, f"see what happened: starter history {path}")
    return ActionView(**row)


def list_locks(connection: sa.Connection, prefix: str = "") -> list[HeldLock]:
    """Returns the locks held at or below a path, or all locks."""
    query = sa.select(locks).order_by(locks.c.path, locks.c.owner)
    if prefix:
        query = query.where(at_or_below_condition(locks.c.path, prefix))
    return [lock_from_row(row) for row in starmap(LockRow, connection.execute(query))]


def lock_from_row(row: LockRow) -> HeldLock:
    """Converts a row of `locks`."""
    return HeldLock(row.path, LockMode(row.mode), row.owner, row.run, row.action, row.since)


def read_aggregated_status(connection: sa.Connection, path: str) -> str:
    """Returns the status that readers see; a group's is computed from its members."""
    row = connection.execute(_SELECT_STATUS, {"at_path": path}).one_or_none()
    if row is None:
        return NONE
    kind, phase = row
    aggregate = registry.KINDS[kind].aggregate
    return aggregate(phase, _count_statuses(connection, {path: kind}).get(path, {})) if aggregate else str(phase)


def at_or_below_condition(column: sa.ColumnElement[str], prefix: str) -> sa.ColumnElement[bool]:
    """Condition for a path and everything below it; `;` follows `:` in ASCII, so `a` does not match `ab`."""
    return (column == prefix) | below_condition(column, prefix)


def below_condition(column: sa.ColumnElement[str], prefix: str) -> sa.ColumnElement[bool]:
    """Condition for everything below a path, without the path itself: one index range."""
    check_path(prefix)
    return (column > f"{prefix}:") & (column < f"{prefix};")


def _read_members(connection: sa.Connection, path: str) -> list[ObjectView]:
    query = sa.select(objects).where(objects.c.parent == path).order_by(objects.c.placement, objects.c.path)
    return _object_views(connection, [ObjectRow(*row) for row in connection.execute(query.limit(MAX_MEMBERS))])


def _object_views(connection: sa.Connection, rows: Sequence[ObjectRow]) -> list[ObjectView]:
    groups = {row.path: row.kind for row in rows if registry.KINDS[row.kind].aggregate}
    counts = _count_statuses(connection, groups) if groups else {}
    return [_object_view(row, counts.get(row.path, {})) for row in rows]


def _count_statuses(connection: sa.Connection, groups: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Counts the statuses of groups' members, or of all objects below where the kind says so."""
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    by_kind: defaultdict[str | None, list[str]] = defaultdict(list)
    for path, kind in groups.items():
        by_kind[registry.KINDS[kind].counted_kind].append(path)
    for counted, paths in by_kind.items():
        which = {"groups": paths, **({"counted": counted} if counted else {})}
        for group, status, number in connection.execute(_COUNT_OBJECTS_BELOW if counted else _COUNT_MEMBERS, which):
            counts[group][status] = number
    return counts


def _object_view(row: ObjectRow, counts: dict[str, int]) -> ObjectView:
    aggregate = registry.KINDS[row.kind].aggregate
    shown = aggregate(row.status, counts) if aggregate else row.status
    plain = row._asdict()
    del plain["parent"]
    return ObjectView.model_construct(**plain | {"status": shown, "phase": row.status, "counts": counts})
