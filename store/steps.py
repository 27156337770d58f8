"""Steps: moves within an action, each by a row of its object's table; a step is applied whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.errors import Refused
from domain.locks import LockMode
from domain.model import AT_WRITE_TIME, Move, Step, StepResult
from domain.paths import is_at_or_below, kind_of, parent_of
from domain.statetable import NO_STATUS, NONE, LineEffect, Row, Ruling, StateTable
from store import status
from store.dbtime import resolve_write_time
from store.history import NO_ROW_MESSAGE, NOT_OWNED_MESSAGE, history_line, merge_info
from store.hooks import NO_HOOKS, HooksByKind
from store.once import mark_done
from store.schema import ActionRow, ObjectRow, actions, locks, objects
from store.status import ObjectSet

_LOCK_ACTION = sa.select(actions).where(actions.c.epoch == sa.bindparam("mine")).with_for_update()
_SELECT_EXCLUSIVE_LOCKS = sa.select(locks.c.path).where(
    locks.c.owner == sa.bindparam("by"), locks.c.run == sa.bindparam("in_run"), locks.c.mode == LockMode.X.value
)
_LOCK_OBJECTS = (
    sa.select(objects)
    .where(objects.c.path.in_(sa.bindparam("names", expanding=True)))
    .order_by(objects.c.path)
    .with_for_update()
)
_NAMED_OBJECTS = ObjectSet(objects.c.path.in_(sa.bindparam("names", expanding=True)))
_CHANGED = [name for name in ObjectRow._fields if name not in ("path", "kind", "parent", "placement", "created_at")]


@dataclass
class _ObjectInStep:
    """An object's row in memory while the moves of a step are applied to it."""

    table: StateTable
    now: ObjectRow
    existed: bool
    been_through: bool = False  # the step was applied by an earlier attempt
    touched: bool = False
    replaced: bool = False  # its row belongs to an earlier object whose path is reused

    def legal_row(self, move: Move) -> Row | None:
        """Returns the row that allows the move. As in begin, the path of an object in a vacant status can be reused."""
        if (row := _find_table_row(self.table, self.now, move)) or self.now.status not in self.table.vacant_statuses:
            return row
        fresh = _columns_of_new_object(move.path)
        creation = _find_table_row(self.table, fresh, move)
        if creation is None or creation.then == NONE:
            return None
        self.now, self.replaced = fresh, True
        return creation


@dataclass
class _StepWriter:
    """Judges the moves of a step one by one in memory; they are written only if all are legal."""

    owner: str
    held: Sequence[str]
    objects: dict[str, _ObjectInStep]
    made: list[tuple[Move, str]] = field(default_factory=list)
    refusals: list[tuple[Move, str]] = field(default_factory=list)

    def apply_move(self, move: Move) -> None:
        """Judges a move and, if it is legal, applies it in memory."""
        thing = self.objects[move.path]
        if not any(is_at_or_below(move.path, path) for path in self.held):
            self.refusals.append((move, NOT_OWNED_MESSAGE))
        elif thing.been_through or thing.now.status == move.to:
            self._update_info_and_spec(thing, move)  # already applied, or only info changes
        elif (row := thing.legal_row(move)) is None:
            self.refusals.append((move, NO_ROW_MESSAGE))
        else:
            self.made.append((move, thing.now.status))
            self._apply_row(thing, move, row)
            self._update_info_and_spec(thing, move)

    def list_moves_told(self) -> Iterator[tuple[Move, str, str, LineEffect]]:
        """Yields the moves for the history, each with where it came from, a message and its effect: those that were
        refused, because no row allows them or the action lost the object, or else all."""
        for move, source in () if self.refusals else self.made:
            yield move, source, move.message or move.error, LineEffect.APPLIED
        for move, why in self.refusals:
            message = f"{why}; {move.message}" if move.message else why
            if move.to == NO_STATUS:  # no row could lead there: only its message says why it is ignored
                message = f"ignored: {move.message}"
            yield move, self.objects[move.path].now.status, message, LineEffect.IGNORED

    def _apply_row(self, thing: _ObjectInStep, move: Move, row: Row) -> None:
        before = thing.now.status
        thing.now = thing.now._replace(status=move.to, error=move.error)
        entering = row.during == move.to and row.source == before
        if before not in thing.table.transitional_statuses or (
            entering and before in thing.table.transitional_resting_statuses
        ):
            thing.now = thing.now._replace(previous_status=before)
        if move.path == self.owner and not (thing.now.placement and registry.is_member_kind(thing.table.kind)):
            return  # the action's own object keeps its target until finish
        if entering:
            thing.now = thing.now._replace(target_action=row.action, target_status=row.target_status(before))
        elif row.rests or move.to not in thing.table.transitional_statuses:
            thing.now = thing.now._replace(target_action=NONE, target_status=NONE)

    def _update_info_and_spec(self, thing: _ObjectInStep, move: Move) -> None:
        thing.touched = True
        if move.info is not None:
            thing.now = thing.now._replace(info=merge_info(thing.now.info, move.info))
        if move.spec is not None:
            thing.now = thing.now._replace(spec=move.spec)


def lock_action(connection: sa.Connection, epoch: int) -> ActionRow | None:
    """Locks an action's row, so that it cannot end meanwhile. Locked before any object's row, as finish does."""
    row = connection.execute(_LOCK_ACTION, {"mine": epoch}).one_or_none()
    return ActionRow(*row) if row else None


def list_locked_paths(connection: sa.Connection, owner: str, run: str) -> list[str]:
    """Returns the paths that a run has locked exclusively."""
    return list(connection.execute(_SELECT_EXCLUSIVE_LOCKS, {"by": owner, "in_run": run}).scalars())


def apply_step(
    connection: sa.Connection, hooks: HooksByKind, step: Step, action: ActionRow | None = None
) -> StepResult:
    """Applies the moves of a step, or records why they are refused. A repeated step finds its moves applied.

    `action` is the action's row if the caller has locked it already.
    """
    action = action or lock_action(connection, step.epoch)
    held: list[str] = []
    if action and action.ended_at is None:
        held = list_locked_paths(connection, action.path, action.run)
    return apply_moves(connection, hooks, step, action.action if action else "step", held)


def apply_moves(
    connection: sa.Connection, hooks: HooksByKind, step: Step, action: str, held: Sequence[str]
) -> StepResult:
    """Applies the moves of a step of an action that is open, and holds these paths with all that is below them."""
    step = step.model_copy(update={"at": resolve_write_time(connection, step.at)})
    walk = _StepWriter(step.path, held, _lock_objects(connection, step))
    for move in step.moves:
        walk.apply_move(move)
    lines = [
        history_line(move.path, step.at, move.actor, move.action or action, source, move.to, step.epoch, why, effect)
        for move, source, why, effect in walk.list_moves_told()
    ]
    if walk.refusals:
        if not step.key:
            status.record_ignored_lines(connection, lines)
        elif mark_done(connection, f"ignored {step.key}"):
            status.record_lines(connection, lines)
        return StepResult(made=False, refusals=[f"{move.path} to {move.to}: {why}" for move, why in walk.refusals])
    moved = hooks.get(kind_of(step.path), NO_HOOKS).after_step
    try:
        with connection.begin_nested() if moved else nullcontext():
            _write_step(connection, step, walk, lines)
            if moved:
                moved(connection, step)
    except Refused as refused:
        return StepResult(made=False, refusals=[refused.message])
    return StepResult(made=True)


def _find_table_row(table: StateTable, now: ObjectRow, move: Move) -> Row | None:
    if not move.action:
        verdict = table.judge_step(now.status, move.to, move.actor)
        return None if verdict.ruling is Ruling.REFUSED else verdict.row
    if entering := table.find_entry_row(move.action, now.status, move.to):
        return entering
    return table.find_ending_row(move.action, now.status, now.previous_status, move.to)


def _lock_objects(connection: sa.Connection, step: Step) -> dict[str, _ObjectInStep]:
    last = {move.path: move.to for move in step.moves}
    rows = {row.path: row for row in starmap(ObjectRow, connection.execute(_LOCK_OBJECTS, {"names": list(last)}))}
    found: dict[str, _ObjectInStep] = {}
    for name, to in last.items():
        now = rows.get(name) or _columns_of_new_object(name)
        # A step may move an object several times, so only its last status shows that the step was applied.
        been_through = now.status == to and (name not in rows or now.epoch == step.epoch)
        found[name] = _ObjectInStep(registry.kind_at(name).table, now, name in rows, been_through)
    return found


def _columns_of_new_object(path: str) -> ObjectRow:
    kind, above = kind_of(path), parent_of(path) or ""
    return ObjectRow(path, kind, above, "", NONE, NONE, NONE, NONE, {}, {}, "", 0, AT_WRITE_TIME, AT_WRITE_TIME)


def _write_step(connection: sa.Connection, step: Step, walk: _StepWriter, lines: list[dict[str, Any]]) -> None:
    changes: list[dict[str, Any]] = []
    births: list[dict[str, Any]] = []
    gone: list[str] = []
    for path, thing in walk.objects.items():
        written = thing.now._replace(epoch=step.epoch, changed_at=step.at)
        if thing.existed and (thing.replaced or written.status == NONE):
            gone.append(path)
        if written.status == NONE:
            continue
        if not thing.existed or thing.replaced:
            births.append(written._replace(created_at=step.at)._asdict())
        elif thing.touched:
            changes.append({"name": path, **{column: getattr(written, column) for column in _CHANGED}})
    if gone:  # before the inserts, which may reuse a path
        _NAMED_OBJECTS.remove_objects(connection, {"names": gone})
    status.create_objects(connection, births)
    status.OBJECT_BY_PATH.change_each_object(connection, changes, lines)
