"""Queries and writes of a sweep: open actions, orphaned locks and objects, leftovers, reports."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa

from domain import registry
from domain.healing import FINDINGS_KEPT, HealReport, Leftover, Suspect
from domain.model import Result
from domain.paths import kind_of
from domain.statetable import NONE, LineEffect
from store.hooks import HooksByKind
from store.recovery import abandon, restore_status
from store.rows import read_all
from store.schema import OPEN, UNBORN, UNDER_WAY, LockRow, ObjectRow, actions, history, locks, objects
from store.schema import heal_reports as reports

REPORTS_KEPT = 1_000

_OPEN = (
    sa.select(actions.c.path, actions.c.run, actions.c.action, actions.c.began_at, actions.c.epoch, objects.c.status)
    .outerjoin(objects, objects.c.path == actions.c.path)
    .where(OPEN, actions.c.began_at <= sa.bindparam("before"))
    .order_by(actions.c.began_at, actions.c.epoch)  # the index's order; with another, SQLite reads the whole table
)
# A lock lives exactly as long as its action: one without an open action is orphaned.
_ORPHANED_LOCKS = (
    sa.select(locks)
    .outerjoin(actions, (actions.c.run == locks.c.run) & actions.c.ended_at.is_(None))
    .where(actions.c.epoch.is_(None), locks.c.since <= sa.bindparam("before"))
    .order_by(locks.c.owner, locks.c.path)
)
_ORPHANED_OBJECTS = (
    sa.select(objects)
    .outerjoin(actions, (actions.c.epoch == objects.c.epoch) & actions.c.ended_at.is_(None))
    .where(actions.c.epoch.is_(None), UNDER_WAY, objects.c.changed_at <= sa.bindparam("before"))
    .order_by(objects.c.changed_at, objects.c.path)
)

_LEFT_OPEN = (
    sa.select(actions.c.epoch)
    .where(actions.c.run == sa.bindparam("dead"), actions.c.ended_at.is_(None))
    .with_for_update()  # so that the action cannot finish at the same time
)
_LEFT_LOCKED = sa.select(locks.c.path).where(
    locks.c.owner == sa.bindparam("owner"), locks.c.run == sa.bindparam("dead")
)

# Objects whose creation was abandoned or failed, each with the last line of its history.
_SUSPECTS = sa.select(history.c.path).where(UNBORN).distinct().subquery()
_later = history.alias("later")
_LAST = (
    sa.select(_later.c.seq)
    .where(_later.c.path == _SUSPECTS.c.path, _later.c.effect != LineEffect.IGNORED.value)
    .order_by(_later.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
_NEVER_CREATED = (
    sa.select(history.c.path, history.c.at, actions.c.action, actions.c.outcome)
    .select_from(_SUSPECTS)
    .join(history, history.c.seq == _LAST)
    .join(actions, actions.c.epoch == history.c.epoch)
    .outerjoin(objects, objects.c.path == history.c.path)
    .where(history.c.to == NONE, objects.c.path.is_(None), actions.c.ended_at.is_not(None))
    .order_by(history.c.path)
)


def suspects(connection: sa.Connection, before: datetime) -> list[Suspect]:
    """Returns open actions, locks and transitional objects older than `before`; the sweep asks Temporal about them."""
    found = [
        Suspect(
            path=path,
            owner=registry.owner_of(path, action),
            run=run,
            action=action,
            since=since,
            status=status or NONE,
            epoch=epoch,
        )
        for path, run, action, since, epoch, status in connection.execute(_OPEN, {"before": before})
    ]
    return [*found, *_unowned_locks(connection, before), *_unowned_objects(connection, before)]


def _unowned_locks(connection: sa.Connection, before: datetime) -> Iterable[Suspect]:
    seen: dict[tuple[str, str], Suspect] = {}
    for row in read_all(LockRow, connection.execute(_ORPHANED_LOCKS, {"before": before})):
        owner, run = row.owner, row.run
        told = Suspect(path=owner, owner=owner, run=run, action=row.action, since=row.since, status="lock")
        seen.setdefault((owner, run), told)
    return seen.values()


def _unowned_objects(connection: sa.Connection, before: datetime) -> Iterable[Suspect]:
    for row in read_all(ObjectRow, connection.execute(_ORPHANED_OBJECTS, {"before": before})):
        if row.status in registry.kind(row.kind).table.transitional:
            yield Suspect(
                path=row.path,
                owner="",
                run="",
                action=row.target_action,
                since=row.changed_at,
                status=row.status,
                epoch=row.epoch,
            )


def heal(connection: sa.Connection, hooks: HooksByKind, suspect: Suspect, at: datetime, message: str) -> bool:
    """Abandons a dead action, or restores an orphaned object. Returns False if nothing was left to heal."""
    if not suspect.run:
        return _recover(connection, suspect, at, message) > 0
    left = (
        connection.execute(_LEFT_OPEN, {"dead": suspect.run}).first()
        or connection.execute(_LEFT_LOCKED, {"owner": suspect.owner, "dead": suspect.run}).first()
    )
    abandon(connection, hooks, suspect.owner, suspect.run, at, message)
    return left is not None


def _recover(connection: sa.Connection, suspect: Suspect, at: datetime, message: str) -> int:
    """Restores an object that is transitional although its action has ended. Returns how many were restored."""
    still_open = sa.select(actions.c.epoch).where(actions.c.epoch == suspect.epoch, actions.c.ended_at.is_(None))
    if connection.execute(still_open).first():
        return 0
    which = (objects.c.path == suspect.path) & (objects.c.epoch == suspect.epoch)
    return restore_status(connection, which, at, message)


def leftovers(connection: sa.Connection) -> list[Leftover]:
    """Returns paths of objects that a failed or dead action never created, and that nothing has created since."""
    return [
        Leftover(path=path, action=action, since=at)
        for path, at, action, outcome in connection.execute(_NEVER_CREATED)
        if registry.is_swept(kind_of(path)) and outcome["result"] != Result.SUCCEEDED
    ]


def keep_report(connection: sa.Connection, report: HealReport) -> HealReport:
    """Stores a heal report and deletes the oldest ones. Returns the report with its number."""
    cut = report.model_copy(update={"found": report.found[:FINDINGS_KEPT]})
    new = sa.insert(reports).values(at=report.at, report=cut.model_dump(mode="json")).returning(reports.c.number)
    number = int(connection.execute(new).scalar_one())
    connection.execute(sa.delete(reports).where(reports.c.number <= number - REPORTS_KEPT))
    return cut.model_copy(update={"number": number})


def read_reports(connection: sa.Connection, limit: int) -> list[HealReport]:
    """Returns the latest heal reports, newest first."""
    query = sa.select(reports.c.number, reports.c.report).order_by(reports.c.number.desc()).limit(limit)
    return [HealReport.model_validate(report | {"number": number}) for number, report in connection.execute(query)]
