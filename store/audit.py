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
    ActionOverlapChecker,
    ActionRecord,
    AuditedHistoryLine,
    AuditSnapshot,
    ChangeKey,
    HistoryChecker,
    HistoryPosition,
    find_missing_outcomes,
    find_unaccounted_changes,
)
from domain.paths import check_path, kind_of
from domain.statetable import NONE, LineEffect
from store.schema import actions, history, locks, objects, pruned

PAGE_SIZE = 200  # rows
WORK_SLICE_SECONDS = 0.0005  # seconds of work between two sleeps
REST_PER_WORK = 1.5  # length of a sleep, as a multiple of the work before it
LONGEST_PAUSE = 0.05  # seconds

AuditRow = sa.Row[Any]
TaggedRow = tuple[str, int, Any]  # path, kind of row, row

_SELECT_OBJECTS = sa.select(objects.c.path, objects.c.kind, objects.c.status, objects.c.target_action, objects.c.epoch)
_SELECT_ACTIONS = sa.select(  # as `ActionRecord` has it
    actions.c.epoch,
    actions.c.path,
    actions.c.action,
    actions.c.run,
    actions.c.ended_at.is_not(None).label("ended"),
    (sa.func.coalesce(sa.cast(actions.c.outcome, sa.Text), "null") != "null").label("has_outcome"),
    actions.c.requested_by,
)
_SELECT_HISTORY = sa.select(*(history.c[name] for name in AuditedHistoryLine._fields))
_SELECT_PRUNED = sa.select(pruned.c.path, *(pruned.c[name] for name in HistoryPosition._fields))
_SELECT_LAST_EPOCH = sa.select(sa.func.max(actions.c.epoch))
_SELECT_LOCKS = sa.select(locks.c.path, locks.c.owner, locks.c.run)
_SELECT_KNOWN_EPOCHS = sa.select(actions.c.epoch).where(actions.c.epoch.in_(sa.bindparam("these", expanding=True)))
_OBJECT_TAG, _ACTION_TAG, _PRUNED_TAG, _LINE_TAG = range(4)


def check_store_invariants(connection: sa.Connection, prefix: str) -> AuditSnapshot:
    """Checks invariants I4, I5, I11 and most of I1, which need the store only; other checks also ask Temporal."""
    snapshot, reader, check = AuditSnapshot(), _SnapshotReader(connection, prefix), _ObjectAuditor()
    snapshot.last = read_last_epoch(connection)
    open_actions = connection.execute(_SELECT_ACTIONS.where(actions.c.ended_at.is_(None)))
    snapshot.open = [ActionRecord(*row) for row in open_actions]
    snapshot.held = [(row.path, row.owner, row.run) for row in reader.read_rows(_SELECT_LOCKS, "path", "owner")]
    rows: Iterable[TaggedRow] = merge(
        ((row[0], _OBJECT_TAG, row) for row in reader.read_rows(_SELECT_OBJECTS, "path")),
        ((row.path, _ACTION_TAG, row) for row in reader.read_rows(_SELECT_ACTIONS, "path", "epoch")),
        ((row[0], _PRUNED_TAG, row) for row in reader.read_rows(_SELECT_PRUNED, "path")),
        _iterate_audited_lines(reader, snapshot),
        key=itemgetter(0, 1),
    )
    for path, about in groupby(rows, key=itemgetter(0)):
        check.check_object(path, about, snapshot)
        reader.yield_to_other_threads()
    return snapshot


def read_last_epoch(connection: sa.Connection) -> int:
    """Returns the number of the last action that has begun; 0 if there was none."""
    return int(connection.execute(_SELECT_LAST_EPOCH).scalar() or 0)


def list_paths_begun_since(connection: sa.Connection, epoch: int) -> list[str]:
    """Returns the paths with an action of a higher epoch: those that have changed since."""
    # Not DISTINCT: SQLite would read all actions in the order of their paths.
    paths = connection.execute(sa.select(actions.c.path).where(actions.c.epoch > epoch)).scalars()
    return list(dict.fromkeys(paths))


class _ObjectAuditor:
    """Checks the stored rows of one object after the other."""

    def __init__(self) -> None:
        self._overlaps = ActionOverlapChecker()
        self._judged: defaultdict[str, dict[ChangeKey, bool]] = defaultdict(dict)

    def check_object(self, path: str, about: Iterable[TaggedRow], found: AuditSnapshot) -> None:
        """Checks one object by its rows, in this order: object, actions, pruned position, history lines."""
        kind = registry.KINDS.get(kind_of(path))
        status, walk = NONE, HistoryChecker(kind.table, path, self._judged[kind.name]) if kind else None
        mine: dict[tuple[int, str], ActionRecord] = {}
        for _, what, row in about:
            if what == _LINE_TAG:
                found.lines += 1
                if walk:
                    walk.check_line(row)
                _extend_line_span(mine, row)
            elif what == _PRUNED_TAG:
                if walk:
                    walk.position = HistoryPosition._make(row[1:])
            elif what == _ACTION_TAG:
                found.actions += 1
                mine[row.epoch, row.action] = ActionRecord(*row)
            else:
                found.objects += 1
                status = row.status
                if (
                    row.target_action != NONE
                    or status in registry.find_kind(row.kind).table.always_transitional_statuses
                ):
                    found.under_way.append((path, status, row.epoch))
        # Hidden actions may overlap others: they begin while others are under way, and wait for them.
        hidden = kind.table.hidden_actions if kind else frozenset[str]()
        found.add_findings(walk.check_final_status(status) if walk else ())
        found.add_findings(find_missing_outcomes(mine.values()))
        found.add_findings(
            self._overlaps.check_actions_of_path(
                path, (record for record in mine.values() if record.action not in hidden)
            )
        )


def _extend_line_span(mine: dict[tuple[int, str], ActionRecord], line: AuditedHistoryLine) -> None:
    """Extends an action's span of history lines by one of its own lines; lines of other actors do not count."""
    action = mine.get((line.epoch, line.action))
    if action and line.effect != LineEffect.IGNORED:
        action.first, action.last = action.first or line.seq, line.seq


def _iterate_audited_lines(reader: _SnapshotReader, found: AuditSnapshot) -> Iterator[TaggedRow]:
    """Yields history lines, and checks page by page that each has an action on record."""
    rows = reader.read_rows(_SELECT_HISTORY, "path", "seq")
    while page := [AuditedHistoryLine._make(row) for _, row in zip(range(PAGE_SIZE), rows, strict=False)]:
        epochs = set(
            reader.connection.execute(_SELECT_KNOWN_EPOCHS, {"these": list({line.epoch for line in page})}).scalars()
        )
        found.add_findings(find_unaccounted_changes(page, epochs))
        yield from ((line.path, _LINE_TAG, line) for line in page)


class _SnapshotReader:
    """Reads one snapshot in pages, and sleeps in between so that the worker's other threads can run."""

    def __init__(self, connection: sa.Connection, prefix: str) -> None:
        self.connection, self._prefix = connection, prefix
        self._worked, self._owed = time.thread_time(), 0.0  # seconds: of work so far, and of sleep that is due for it
        self._looked = time.perf_counter()

    def read_rows(self, query: sa.Select[Any], *key: str) -> Iterator[AuditRow]:
        """Yields the rows at or below the prefix, in the order of a key that begins with the path."""
        columns = [query.selected_columns[name] for name in key]
        path, after = columns[0], sa.tuple_(*(sa.bindparam(f"last_{name}") for name in key))
        for low, high in _key_ranges_at_or_below(self._prefix):
            part = query.where(path >= low, path <= high) if self._prefix else query
            part = part.order_by(*columns).limit(PAGE_SIZE)
            following = part.where(sa.tuple_(*columns) > after)
            page = self._read_page(part, {})
            while page:
                yield from page
                last = {f"last_{name}": getattr(page[-1], name) for name in key}
                page = self._read_page(following, last) if len(page) == PAGE_SIZE else []

    def yield_to_other_threads(self) -> None:
        """Sleeps in proportion to the time worked since the last sleep, to release the interpreter lock.

        Only this thread's own work counts, and a sleep for as long as it took: on a busy machine both take longer, and
        the whole would take many times as long.
        """
        if time.perf_counter() - self._looked < WORK_SLICE_SECONDS:
            return  # it cannot have worked for longer; asking for that is a system call
        worked = time.thread_time()
        self._owed += REST_PER_WORK * (worked - self._worked)
        self._worked = worked
        if self._owed >= REST_PER_WORK * WORK_SLICE_SECONDS:
            asleep = time.perf_counter()
            time.sleep(min(self._owed, LONGEST_PAUSE))
            self._owed = max(self._owed - (time.perf_counter() - asleep), -LONGEST_PAUSE)
        self._looked = time.perf_counter()

    def _read_page(self, query: sa.Select[Any], after: dict[str, Any]) -> Sequence[AuditRow]:
        self.yield_to_other_threads()
        return self.connection.execute(query, after).all()


def _key_ranges_at_or_below(prefix: str) -> list[tuple[str, str]]:
    """Returns two key ranges, the path and everything below it: `web-1` sorts between `web` and `web:vm:1`."""
    if not prefix:
        return [("", "")]
    check_path(prefix)
    return [(prefix, prefix), (f"{prefix}:", f"{prefix};")]
