"""Steps: moves within an action, each by a row of its object's table; a step is applied whole or not at all."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.errors import Refused, one_line
from domain.locks import Mode
from domain.model import Move, Step, Stepped
from domain.paths import kind_of, parent_of
from domain.statetable import NONE, LineEffect, Row, Ruling, StateTable
from store import status
from store.clock import written_at
from store.history import NO_ROW, NOT_OURS, history_line, merge_info
from store.hooks import NO_HOOKS, HooksByKind
from store.schema import actions, locks, objects
from store.status import ObjectSet

_ACTION = sa.select(actions).where(actions.c.epoch == sa.bindparam("mine")).with_for_update()
_HELD = sa.select(locks.c.path).where(
    locks.c.owner == sa.bindparam("by"), locks.c.run == sa.bindparam("in_run"), locks.c.mode == Mode.X.value
)
_FOUND = (
    sa.select(objects)
    .where(objects.c.path.in_(sa.bindparam("names", expanding=True)))
    .order_by(objects.c.path)
    .with_for_update()
)
_NAMED = ObjectSet(objects.c.path.in_(sa.bindparam("names", expanding=True)))
_KEPT = ("placement", "status", "previous_status", "target_action", "target_status", "spec", "info", "error")


@dataclass
class _MovingObject:
    """An object's row in memory while the moves of a step are applied to it."""

    path: str
    table: StateTable
    kept: dict[str, Any]
    existed: bool
    been_through: bool = False  # the step was applied by an earlier attempt
    touched: bool = False
    replaced: bool = False  # its row belongs to an earlier object whose path is reused

    @property
    def status(self) -> str:
        return str(self.kept["status"])

    def row(self, move: Move) -> Row | None:
        """Returns the row that allows the move. As in begin, the path of an object in a vacant status can be reused."""
        if (row := _row(self.table, self.kept, move)) or self.status not in self.table.vacant:
            return row
        creation = _row(self.table, _never_created(), move)
        if creation is None or creation.then == NONE:
            return None
        self.kept, self.replaced = _never_created(), True
        return creation


@dataclass
class _StepWriter:
    """Judges the moves of a step one by one in memory; they are written only if all are legal."""

    owner: str
    action: str
    held: list[str]
    objects: dict[str, _MovingObject]
    lines: list[tuple[Move, str]] = field(default_factory=list)
    refusals: list[tuple[Move, str]] = field(default_factory=list)

    def make(self, move: Move) -> None:
        """Judges a move and, if it is legal, applies it in memory."""
        thing = self.objects[move.path]
        if not any(move.path == path or move.path.startswith(f"{path}:") for path in self.held):
            self.refusals.append((move, NOT_OURS))
        elif thing.been_through or thing.status == move.to:
            self._record(thing, move)  # already applied, or only info changes
        elif (row := thing.row(move)) is None:
            self.refusals.append((move, NO_ROW))
        else:
            self.lines.append((move, thing.status))
            self._follow(thing, move, row)
            self._record(thing, move)

    def _follow(self, thing: _MovingObject, move: Move, row: Row) -> None:
        before, kept = thing.status, thing.kept
        kept["status"], kept["error"] = move.to, move.error
        entering = row.during == move.to and row.source == before
        if before not in thing.table.transitional or (entering and before in thing.table.resting):
            kept["previous_status"] = before
        if move.path == self.owner and not (kept["placement"] and registry.is_target(thing.table.kind)):
            return  # the action's own object keeps its target until finish
        if entering:
            kept["target_action"], kept["target_status"] = row.action, row.target_status(before)
        elif row.rests or move.to not in thing.table.transitional:
            kept["target_action"] = kept["target_status"] = NONE

    def _record(self, thing: _MovingObject, move: Move) -> None:
        thing.touched = True
        if move.info is not None:
            thing.kept["info"] = merge_info(thing.kept["info"], move.info)
        if move.spec is not None:
            thing.kept["spec"] = move.spec


def apply_step(
    connection: sa.Connection, hooks: HooksByKind, step: Step, action: sa.RowMapping | None = None
) -> Stepped:
    """Applies the moves of a step, or records why they are refused. A repeated step finds its moves applied.

    `action` is the action's row if the caller has locked it already.
    """
    step = step.model_copy(update={"at": written_at(connection, step.at)})
    action = action or connection.execute(_ACTION, {"mine": step.epoch}).mappings().one_or_none()
    held: list[str] = []
    if action and action["ended_at"] is None:
        held = list(connection.execute(_HELD, {"by": action["path"], "in_run": action["run"]}).scalars())
    walk = _StepWriter(step.path, action["action"] if action else "step", held, _objects(connection, step))
    for move in step.moves:
        walk.make(move)
    if walk.refusals:
        _record_ignored(connection, step, walk)
        return Stepped(made=False, refusals=[f"{move.path} to {move.to}: {why}" for move, why in walk.refusals])
    moved = hooks.get(kind_of(step.path), NO_HOOKS).moved
    try:
        with connection.begin_nested() if moved else nullcontext():
            _write(connection, step, walk)
            if moved:
                moved(connection, step)
    except Refused as refused:
        return Stepped(made=False, refusals=[refused.message])
    return Stepped(made=True)


def _row(table: StateTable, kept: dict[str, Any], move: Move) -> Row | None:
    status = str(kept["status"])
    if not move.action:
        verdict = table.judge_step(status, move.to, move.actor)
        return None if verdict.ruling is Ruling.REFUSED else verdict.row
    if entering := table.entry_row(move.action, status, move.to):
        return entering
    return table.landing_row(move.action, status, str(kept["previous_status"]), move.to)


def _objects(connection: sa.Connection, step: Step) -> dict[str, _MovingObject]:
    last = {move.path: move.to for move in step.moves}
    names = list(last)
    rows = {row["path"]: row for row in connection.execute(_FOUND, {"names": names}).mappings()}
    found: dict[str, _MovingObject] = {}
    for name in names:
        row = rows.get(name)
        kept = {key: row[key] for key in _KEPT} if row else _never_created()
        # A step may move an object several times, so only its last status shows that the step was applied.
        been_through = kept["status"] == last[name] and (row is None or row["epoch"] == step.epoch)
        found[name] = _MovingObject(name, registry.kind_at(name).table, kept, row is not None, been_through)
    return found


def _never_created() -> dict[str, Any]:
    words = dict.fromkeys(("status", "previous_status", "target_action", "target_status"), NONE)
    return {**words, "placement": "", "spec": {}, "info": {}, "error": ""}


def _write(connection: sa.Connection, step: Step, walk: _StepWriter) -> None:
    changes: list[dict[str, Any]] = []
    births: list[dict[str, Any]] = []
    gone: list[str] = []
    for thing in walk.objects.values():
        stamp = {"epoch": step.epoch, "changed_at": step.at}
        if thing.existed and (thing.replaced or thing.status == NONE):
            gone.append(thing.path)
        if thing.status == NONE:
            continue
        if thing.existed and not thing.replaced:
            changes += [{"name": thing.path, **thing.kept, **stamp}] if thing.touched else []
        else:
            born = {"path": thing.path, "kind": thing.table.kind, "parent": parent_of(thing.path) or ""}
            births.append({**born, **thing.kept, **stamp, "created_at": step.at})
    lines = [_line(step, walk, move, source) for move, source in walk.lines]
    if gone:  # before the inserts, which may reuse a path
        _NAMED.remove(connection, {"names": gone})
    status.create(connection, births)
    status.ONE.change_each(connection, changes, lines)


def _line(step: Step, walk: _StepWriter, move: Move, source: str) -> dict[str, Any]:
    action = move.action or walk.action
    message = move.message or move.error
    return history_line(move.path, step.at, move.actor, action, source, move.to, step.epoch, message)


def _record_ignored(connection: sa.Connection, step: Step, walk: _StepWriter) -> None:
    """Records refused moves in the history: no row allows them, or the action lost the object."""
    told = []
    for move, why in walk.refusals:
        message = one_line(f"{why}; {move.message}" if move.message else why)
        source = walk.objects[move.path].status
        told.append(
            history_line(
                move.path,
                step.at,
                move.actor,
                move.action or walk.action,
                source,
                move.to,
                step.epoch,
                message,
                LineEffect.IGNORED,
            )
        )
    status.record(connection, told)
