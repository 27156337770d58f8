"""Checks the stored objects, actions and history for `verify`. Read-only.

Reads page by page in path order, over one snapshot: memory use does not grow with the store, and no writer waits. It
sleeps between pages, because the worker's other threads need the interpreter lock.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.invariants import (
    ActionFacts,
    AuditLine,
    AuditSnapshot,
    HistoryWalk,
    JudgedChange,
    Overlaps,
    WalkPosition,
    ended_with_an_outcome,
    every_change_is_accounted_for,
)
from domain.paths import check_path, kind_of
from domain.statetable import NONE, LineEffect
from store.schema import actions, history, locks, objects, pruned

PAGE = 200  # rows
SLICE = 0.0005  # seconds of work between two sleeps
REST = 1.5  # length of a sleep, as a multiple of the work before it
LONGEST_PAUSE = 0.05  # seconds

AuditRow = sa.Row[Any]
TaggedRow = tuple[str, int, Any]  # path, kind of row, row

_OBJECTS = sa.select(objects.c.path, objects.c.kind, objects.c.status, objects.c.target_action, objects.c.epoch)
_ACTIONS = sa.select(
    actions.c.path,
    actions.c.epoch,
    actions.c.action,
    actions.c.run,
    actions.c.requested_by,
    actions.c.ended_at.is_not(None).label("ended"),
    (sa.func.coalesce(sa.cast(actions.c.outcome, sa.Text), "null") != "null").label("has_outcome"),
)
_HISTORY = sa.select(*(history.c[name] for name in AuditLine._fields))
_BEGINS = sa.select(pruned.c.path, *(pruned.c[name] for name in WalkPosition._fields))
_LAST_EPOCH = sa.select(sa.func.max(actions.c.epoch))
_LOCKS = sa.select(locks.c.path, locks.c.owner, locks.c.run)
_EPOCHS = sa.select(actions.c.epoch).where(actions.c.epoch.in_(sa.bindparam("these", expanding=True)))
_OBJECT, _ACTION, _PRUNED, _LINE = range(4)


def check_kept(connection: sa.Connection, prefix: str) -> AuditSnapshot:
    """Checks invariants I4, I5, I11 and most of I1, which need the store only; other checks also ask Temporal."""
    found, reader, check = AuditSnapshot(), _SnapshotReader(connection, prefix), _AuditCheck()
    found.last = last_epoch(connection)
    found.open = [_action_facts(row) for row in connection.execute(_ACTIONS.where(actions.c.ended_at.is_(None)))]
    found.held = [(row.path, row.owner, row.run) for row in reader.rows(_LOCKS, "path", "owner")]
    rows: Iterable[TaggedRow] = merge(
        ((row[0], _OBJECT, row) for row in reader.rows(_OBJECTS, "path")),
        ((row[0], _ACTION, row) for row in reader.rows(_ACTIONS, "path", "epoch")),
        ((row[0], _PRUNED, row) for row in reader.rows(_BEGINS, "path")),
        _lines(reader, found),
        key=itemgetter(0, 1),
    )
    for path, about in groupby(rows, key=itemgetter(0)):
        check.take(path, about, found)
        reader.rest()
    return found


def last_epoch(connection: sa.Connection) -> int:
    """The number of the last action that has begun; 0 if there was none."""
    return int(connection.execute(_LAST_EPOCH).scalar() or 0)


def begun_since(connection: sa.Connection, epoch: int) -> list[str]:
    """Returns the paths of objects on which an action has begun after the action with this epoch."""
    # Not DISTINCT: SQLite would read all actions in the order of their paths.
    paths = connection.execute(sa.select(actions.c.path).where(actions.c.epoch > epoch)).scalars()
    return list(dict.fromkeys(paths))


class _AuditCheck:
    """Checks the stored rows of one object after the other."""

    def __init__(self) -> None:
        self._overlaps = Overlaps()
        self._judged: defaultdict[str, dict[JudgedChange, bool]] = defaultdict(dict)

    def take(self, path: str, about: Iterable[TaggedRow], found: AuditSnapshot) -> None:
        """Checks one object by its rows, in this order: object, actions, pruned position, history lines."""
        kind = registry.KINDS.get(kind_of(path))
        status, walk = NONE, HistoryWalk(kind.table, path, self._judged[kind.name]) if kind else None
        mine: dict[tuple[int, str], ActionFacts] = {}
        for _, what, row in about:
            if what == _LINE:
                found.lines += 1
                if walk:
                    walk.check(row)
                _extend(mine, row)
            elif what == _PRUNED:
                if walk:
                    walk.resume(WalkPosition._make(row[1:]))
            elif what == _ACTION:
                found.actions += 1
                mine[row.epoch, row.action] = _action_facts(row)
            else:
                found.objects += 1
                status = row.status
                if row.target_action != NONE or status in registry.kind(row.kind).table.moving:
                    found.under_way.append((path, status, row.epoch))
        # Hidden actions may overlap others: they begin while others are under way, and wait for them.
        hidden = kind.table.hidden_actions if kind else frozenset[str]()
        found.note(walk.end(status) if walk else ())
        found.note(ended_with_an_outcome(mine.values()))
        found.note(self._overlaps.check(path, (each for each in mine.values() if each.action not in hidden)))


def _extend(mine: dict[tuple[int, str], ActionFacts], line: AuditLine) -> None:
    """Extends an action's span of history lines by one of its own lines; lines of other actors do not count."""
    action = mine.get((line.epoch, line.action))
    if action and line.effect != LineEffect.IGNORED:
        action.first, action.last = action.first or line.seq, line.seq


def _action_facts(row: AuditRow) -> ActionFacts:
    return ActionFacts(
        epoch=row.epoch,
        path=row.path,
        action=row.action,
        run=row.run,
        ended=bool(row.ended),
        has_outcome=bool(row.has_outcome),
        requested_by=row.requested_by,
    )


def _lines(reader: _SnapshotReader, found: AuditSnapshot) -> Iterator[TaggedRow]:
    """Yields history lines, and checks page by page that each has an action on record."""
    rows = reader.rows(_HISTORY, "path", "seq")
    while page := [AuditLine._make(row) for _, row in zip(range(PAGE), rows, strict=False)]:
        epochs = set(reader.connection.execute(_EPOCHS, {"these": list({line.epoch for line in page})}).scalars())
        found.note(every_change_is_accounted_for(page, epochs))
        yield from ((line.path, _LINE, line) for line in page)


class _SnapshotReader:
    """Reads one snapshot in pages, and sleeps in between so that the worker's other threads can run."""

    def __init__(self, connection: sa.Connection, prefix: str) -> None:
        self.connection, self._prefix, self._rested = connection, prefix, time.perf_counter()

    def rows(self, query: sa.Select[Any], *key: str) -> Iterator[AuditRow]:
        """Yields the rows at or below the prefix, in the order of a key that begins with the path."""
        columns = [query.selected_columns[name] for name in key]
        path, after = columns[0], sa.tuple_(*(sa.bindparam(f"last_{name}") for name in key))
        for low, high in _ranges(self._prefix):
            part = query.where(path >= low, path <= high) if self._prefix else query
            part = part.order_by(*columns).limit(PAGE)
            following = part.where(sa.tuple_(*columns) > after)
            page = self._read(part, {})
            while page:
                yield from page
                last = {f"last_{name}": getattr(page[-1], name) for name in key}
                page = self._read(following, last) if len(page) == PAGE else []

    def rest(self) -> None:
        """Sleeps in proportion to the time worked since the last sleep, to release the interpreter lock."""
        worked = time.perf_counter() - self._rested
        if worked >= SLICE:
            time.sleep(min(REST * worked, LONGEST_PAUSE))
            self._rested = time.perf_counter()

    def _read(self, query: sa.Select[Any], after: dict[str, Any]) -> Sequence[AuditRow]:
        self.rest()
        return self.connection.execute(query, after).all()


def _ranges(prefix: str) -> list[tuple[str, str]]:
    """Returns two key ranges, the path and everything below it: `web-1` sorts between `web` and `web:vm:1`."""
    if not prefix:
        return [("", "")]
    check_path(prefix)
    return [(prefix, prefix), (f"{prefix}:", f"{prefix};")]
