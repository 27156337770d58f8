"""Queries and writes of a sweep: open actions, orphaned locks and objects, leftovers, reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import starmap

import sqlalchemy as sa

from domain import registry
from domain.healing import MAX_FINDINGS_REPORTED, HealReport, Leftover, OpenRun, StuckItem
from domain.model import ActionResult
from domain.paths import kind_of
from domain.statetable import NONE, LineEffect
from domain.wire import object_path_of
from store.hooks import HooksByKind
from store.identity import read_identity
from store.recovery import abandon_run, restore_status
from store.schema import IS_NEVER_CREATED, IS_OPEN, IS_UNDER_WAY, LockRow, ObjectRow, actions, history, locks, objects
from store.schema import heal_reports as reports

REPORTS_KEPT = 1_000

_SELECT_OPEN_ACTIONS = (
    sa.select(actions.c.path, actions.c.run, actions.c.action, actions.c.began_at, actions.c.epoch, objects.c.status)
    .outerjoin(objects, objects.c.path == actions.c.path)
    .where(IS_OPEN, actions.c.began_at <= sa.bindparam("before"))
    .order_by(actions.c.began_at, actions.c.epoch)  # the index's order; with another, SQLite reads the whole table
)
# A lock lives exactly as long as its action: one without an open action is orphaned.
_SELECT_UNOWNED_LOCKS = (
    sa.select(locks)
    .outerjoin(actions, (actions.c.run == locks.c.run) & actions.c.ended_at.is_(None))
    .where(actions.c.epoch.is_(None), locks.c.since <= sa.bindparam("before"))
    .order_by(locks.c.owner, locks.c.path)
)
_SELECT_UNOWNED_OBJECTS = (
    sa.select(objects)
    .outerjoin(actions, (actions.c.epoch == objects.c.epoch) & actions.c.ended_at.is_(None))
    .where(actions.c.epoch.is_(None), IS_UNDER_WAY, objects.c.changed_at <= sa.bindparam("before"))
    .order_by(objects.c.changed_at, objects.c.path)
)

_LOCK_OPEN_ACTION_OF_RUN = (
    sa.select(actions.c.epoch)
    .where(actions.c.run == sa.bindparam("dead"), actions.c.ended_at.is_(None))
    .with_for_update()  # so that the action cannot finish at the same time
)
_SELECT_LOCKS_OF_RUN = sa.select(locks.c.path).where(
    locks.c.owner == sa.bindparam("owner"), locks.c.run == sa.bindparam("dead")
)

_SELECT_ENDS_OF_RUNS = sa.select(actions.c.run, actions.c.ended_at).where(
    actions.c.run.in_(sa.bindparam("runs", expanding=True))
)

# Objects whose creation was abandoned or failed, each with the last line of its history.
_ABANDONED_PATHS = sa.select(history.c.path).where(IS_NEVER_CREATED).distinct().subquery()
_later = history.alias("later")
_LAST_CHANGE = (
    sa.select(_later.c.seq)
    .where(_later.c.path == _ABANDONED_PATHS.c.path, _later.c.effect != LineEffect.IGNORED.value)
    .order_by(_later.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
_SELECT_LEFTOVERS = (
    sa.select(history.c.path, history.c.at, actions.c.action, actions.c.outcome)
    .select_from(_ABANDONED_PATHS)
    .join(history, history.c.seq == _LAST_CHANGE)
    .join(actions, actions.c.epoch == history.c.epoch)
    .outerjoin(objects, objects.c.path == history.c.path)
    .where(history.c.to == NONE, objects.c.path.is_(None), actions.c.ended_at.is_not(None))
    .order_by(history.c.path)
)


def list_stuck_items(connection: sa.Connection, before: datetime) -> list[StuckItem]:
    """Returns open actions, locks and transitional objects older than `before`; the sweep asks Temporal about them."""
    found = [
        StuckItem(
            path=path,
            owner=registry.workflow_id_of(path, action),
            run=run,
            action=action,
            since=since,
            status=status or NONE,
            epoch=epoch,
        )
        for path, run, action, since, epoch, status in connection.execute(_SELECT_OPEN_ACTIONS, {"before": before})
    ]
    return [*found, *_find_unowned_locks(connection, before), *_find_unowned_objects(connection, before)]


def _find_unowned_locks(connection: sa.Connection, before: datetime) -> Iterable[StuckItem]:
    seen: dict[tuple[str, str], StuckItem] = {}
    for row in starmap(LockRow, connection.execute(_SELECT_UNOWNED_LOCKS, {"before": before})):
        owner, run, path = row.owner, row.run, object_path_of(row.owner)
        suspect = StuckItem(path=path, owner=owner, run=run, action=row.action, since=row.since, status="lock")
        seen.setdefault((owner, run), suspect)
    return seen.values()


def _find_unowned_objects(connection: sa.Connection, before: datetime) -> Iterable[StuckItem]:
    for row in starmap(ObjectRow, connection.execute(_SELECT_UNOWNED_OBJECTS, {"before": before})):
        if row.status in registry.find_kind(row.kind).table.transitional_statuses:
            yield StuckItem(
                path=row.path,
                owner="",
                run="",
                action=row.target_action,
                since=row.changed_at,
                status=row.status,
                epoch=row.epoch,
            )


def filter_lost_runs(connection: sa.Connection, runs: Sequence[OpenRun], before: datetime) -> list[str]:
    """Returns the runs whose action ended before that time, and those that began before the store was restored.

    Of the latter the store may know nothing: the restore has ended every action that was open in the backup.
    """
    identity = read_identity(connection)
    rows = connection.execute(_SELECT_ENDS_OF_RUNS, {"runs": [run.run for run in runs]})
    ends = {row.run: row.ended_at for row in rows}
    return [
        run.run
        for run in runs
        if ((end := ends.get(run.run)) is not None and end <= before)
        or (run.run not in ends and identity.incarnation > 1 and run.started <= identity.since)
    ]


def heal_stuck_item(
    connection: sa.Connection, hooks: HooksByKind, suspect: StuckItem, at: datetime, message: str
) -> bool:
    """Abandons a dead action, or restores an orphaned object. Returns False if nothing was left to heal."""
    if not suspect.run:
        return _restore_unowned_object(connection, suspect, at, message) > 0
    left = (
        connection.execute(_LOCK_OPEN_ACTION_OF_RUN, {"dead": suspect.run}).first()
        or connection.execute(_SELECT_LOCKS_OF_RUN, {"owner": suspect.owner, "dead": suspect.run}).first()
    )
    abandon_run(connection, hooks, suspect.owner, suspect.run, at, message)
    return left is not None


def _restore_unowned_object(connection: sa.Connection, suspect: StuckItem, at: datetime, message: str) -> int:
    """Restores an object that is transitional although its action has ended. Returns how many were restored."""
    still_open = sa.select(actions.c.epoch).where(actions.c.epoch == suspect.epoch, actions.c.ended_at.is_(None))
    if connection.execute(still_open).first():
        return 0
    which = (objects.c.path == suspect.path) & (objects.c.epoch == suspect.epoch)
    return restore_status(connection, which, at, message)


def list_leftovers(connection: sa.Connection) -> list[Leftover]:
    """Returns paths of objects that a failed or dead action never created, and that nothing has created since."""
    return [
        Leftover(path=path, action=action, since=at)
        for path, at, action, outcome in connection.execute(_SELECT_LEFTOVERS)
        if registry.may_sweep_leftovers(kind_of(path)) and outcome["result"] != ActionResult.SUCCEEDED
    ]


def save_heal_report(connection: sa.Connection, report: HealReport) -> HealReport:
    """Stores a heal report and deletes the oldest ones. Returns the report with its number."""
    cut = report.model_copy(update={"found": report.found[:MAX_FINDINGS_REPORTED]})
    new = sa.insert(reports).values(at=report.at, report=cut.model_dump(mode="json")).returning(reports.c.number)
    number = int(connection.execute(new).scalar_one())
    connection.execute(sa.delete(reports).where(reports.c.number <= number - REPORTS_KEPT))
    return cut.model_copy(update={"number": number})


def read_reports(connection: sa.Connection, limit: int) -> list[HealReport]:
    """Returns the latest heal reports, newest first."""
    query = sa.select(reports.c.number, reports.c.report).order_by(reports.c.number.desc()).limit(limit)
    return [HealReport.model_validate(report | {"number": number}) for number, report in connection.execute(query)]
