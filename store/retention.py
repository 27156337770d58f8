"""Retention: exports and removes ended actions and their history lines once they are old enough.

A path loses its oldest lines only, and all lines of an action at once. `pruned` stores where its history then begins,
for `verify`. An action is removed with its last line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa

from domain import registry
from domain.healing import PruneResult
from domain.invariants import AuditedHistoryLine, HistoryChecker, HistoryPosition
from domain.paths import kind_of, parent_of
from domain.statetable import LineEffect
from store.healing import list_leftovers
from store.rows import find_objects
from store.schema import ActionRow, HistoryRow, actions, history, locks, objects, pruned

ACTIONS_PER_BATCH = 100  # per transaction
STRAY_LINES_PER_BATCH = 1_000  # lines without an action, per transaction

ExportFunction = Callable[[list[dict[str, Any]]], None]  # must have written the rows to disk when it returns

_SELECT_LOCK = sa.select(locks.c.path).where(locks.c.run == sa.bindparam("by")).limit(1)
_IS_CURRENT = (
    sa.select(objects.c.path).where(objects.c.path == actions.c.path, objects.c.epoch == actions.c.epoch).exists()
)
# An epoch is at least its action's begin in microseconds, so old actions are a range of the primary key.
# The highest epoch stays: the next one is computed from it if the clock was set back.
_LOCK_OLD_ACTIONS = (
    sa.select(actions)
    .where(
        actions.c.epoch > sa.bindparam("after"),
        actions.c.epoch <= sa.bindparam("newest"),
        actions.c.epoch < sa.select(sa.func.max(actions.alias("all_actions").c.epoch)).scalar_subquery(),
        actions.c.ended_at <= sa.bindparam("before"),
    )
    .order_by(actions.c.epoch)
    .limit(sa.bindparam("most"))
    .with_for_update()  # serialises two sweeps
)
_mine = history.alias("mine")


def _epoch_of_first_line(column: sa.ColumnElement[Any]) -> sa.ScalarSelect[Any]:
    """Builds the subquery for the epoch of a path's first line, or last line, that is not ignored."""
    told = sa.select(_mine.c.epoch).where(_mine.c.path == history.c.path, _mine.c.effect != LineEffect.IGNORED.value)
    return told.order_by(column).limit(1).scalar_subquery()


_SELECT_LINES = (
    sa.select(
        history,
        objects.c.epoch.label("current"),
        _epoch_of_first_line(_mine.c.seq).label("oldest"),
        _epoch_of_first_line(_mine.c.seq.desc()).label("latest"),
        *(pruned.c[name] for name in HistoryPosition._fields),
    )
    .outerjoin(objects, objects.c.path == history.c.path)
    .outerjoin(pruned, pruned.c.path == history.c.path)
    .where(history.c.epoch == sa.bindparam("number"))
    .order_by(history.c.path, history.c.seq)
)


class _PrunableLine(NamedTuple):
    """A line of the history, and what decides whether it may go."""

    line: HistoryRow
    current: int | None  # the epoch of its object
    oldest: int | None
    latest: int | None
    was: HistoryPosition  # where the history begins so far

    @classmethod
    def from_row(cls, *values: Any) -> _PrunableLine:
        """Parses a row of `_LINES`."""
        line, rest = values[: len(HistoryRow._fields)], values[len(HistoryRow._fields) :]
        current, oldest, latest, *was = rest
        return cls(HistoryRow(*line), current, oldest, latest, HistoryPosition(*was) if was[0] else HistoryPosition())


_SELECT_STRAY_LINES = (
    sa.select(history)
    .where(history.c.epoch == 0, history.c.at <= sa.bindparam("before"), history.c.effect == LineEffect.IGNORED.value)
    .limit(sa.bindparam("most"))
)
_DELETE_LINE = sa.delete(history).where(history.c.seq == sa.bindparam("number"))
_DELETE_ACTION = sa.delete(actions).where(actions.c.epoch == sa.bindparam("number"), ~_IS_CURRENT)
_DELETE_PRUNED = sa.delete(pruned).where(pruned.c.path == sa.bindparam("at_path"))
_DELETE_PRUNED_BELOW = sa.delete(pruned).where(
    pruned.c.path > sa.bindparam("low"), pruned.c.path < sa.bindparam("high")
)


def prune_batch(
    connection: sa.Connection, before: datetime, after: int, busy: Set[str], export: ExportFunction
) -> PruneResult:
    """Removes one batch of old actions, from epoch `after` on, except those whose workflow ID is in `busy`.

    The rows are exported before the commit: a crash in between exports them twice, and loses none.
    """
    which = {"after": after, "newest": int(before.timestamp() * 1_000_000), "before": before, "most": ACTIONS_PER_BATCH}
    old = [ActionRow(*row) for row in connection.execute(_LOCK_OLD_ACTIONS, which)]
    kept = {leftover.path for leftover in list_leftovers(connection)} if old else set[str]()
    lines = [
        HistoryRow(*row)
        for row in connection.execute(_SELECT_STRAY_LINES, {"before": before, "most": STRAY_LINES_PER_BATCH})
    ]
    ended: list[ActionRow] = []
    _remove_lines(connection, lines)
    for action in old:
        owner = registry.workflow_id_of(action.path, action.action)
        if owner in busy or connection.execute(_SELECT_LOCK, {"by": action.run}).first():
            continue
        gone, whole = _prune_lines(connection, action.epoch, kept)
        lines += gone
        if whole and connection.execute(_DELETE_ACTION, {"number": action.epoch}).rowcount:
            ended.append(action)
    if lines or ended:
        exported = [{"table": "history", **row._asdict()} for row in lines]
        export(exported + [{"table": "actions", **row._asdict()} for row in ended])
    return PruneResult(
        actions=len(ended), lines=len(lines), after=old[-1].epoch if len(old) == ACTIONS_PER_BATCH else 0
    )


def _prune_lines(connection: sa.Connection, epoch: int, kept: Set[str]) -> tuple[list[HistoryRow], bool]:
    """Removes an action's lines from each path where they are the oldest. Returns them, and whether all went."""
    gone, whole = list[HistoryRow](), True
    begins: dict[str, HistoryPosition] = {}
    vanished: list[str] = []
    found = [_PrunableLine.from_row(*row) for row in connection.execute(_SELECT_LINES, {"number": epoch})]
    for path, about in groupby(found, key=lambda line: line.line.path):
        rows = list(about)
        walk = None if path in kept else _position_after(path, rows, epoch)
        if walk is None:
            whole = False
            continue
        gone += [row.line for row in rows]
        begins[path] = walk
        if rows[0].current is None and rows[0].latest in (None, epoch):
            vanished.append(path)
    _remove_lines(connection, gone)
    _store_history_begins(connection, begins, vanished)
    return gone, whole


def _position_after(path: str, rows: Sequence[_PrunableLine], epoch: int) -> HistoryPosition | None:
    """Replays an action's lines of one path. Returns the position reached, or None if the lines must stay."""
    first = rows[0]
    changes = [row for row in rows if row.line.effect != LineEffect.IGNORED]
    if first.current == epoch or (changes and first.oldest != epoch):
        return None
    kind = registry.KINDS.get(kind_of(path))
    if kind is None:
        return first.was
    walk = HistoryChecker(kind.table, path)
    walk.position = first.was
    for row in rows:
        walk.check_line(AuditedHistoryLine._make(getattr(row.line, name) for name in AuditedHistoryLine._fields))
    return None if walk.violation else walk.position


def _remove_lines(connection: sa.Connection, lines: list[HistoryRow]) -> None:
    if lines:
        connection.execute(_DELETE_LINE, [{"number": row.seq} for row in lines])


def _store_history_begins(
    connection: sa.Connection, begins: dict[str, HistoryPosition], vanished: Sequence[str]
) -> None:
    """Stores the position at which each pruned history now begins.

    That of a removed object stays while its parent exists, because a VM's number must not come again.
    """
    if not begins:
        return
    above = {path: parent_of(path) or "" for path in vanished}
    living = {row.path for row in find_objects(connection, set(above.values()))}
    forgotten = {path for path in vanished if above[path] not in living}
    connection.execute(_DELETE_PRUNED, [{"at_path": path} for path in begins])
    if kept := [{"path": path, **begin._asdict()} for path, begin in begins.items() if path not in forgotten]:
        connection.execute(sa.insert(pruned), kept)
    if forgotten:
        connection.execute(
            _DELETE_PRUNED_BELOW, [{"low": f"{path}:", "high": f"{path};"} for path in sorted(forgotten)]
        )
