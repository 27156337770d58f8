"""A lease with its reservations and events, checked against the relationship table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from domain.leases.names import event_path
from domain.leases.specs import LeaseTerm
from domain.leases.tables import (
    BEFORE_END,
    END,
    EVENTS,
    START,
    EventStatus,
    LeaseStatus,
    describe_contradiction,
    why_only_delete_allowed,
)
from domain.paths import name_of
from domain.statetable import NONE, Actor
from store.history import history_line
from store.leases.tables import EventTimerRow, timers
from store.schema import ObjectRow, objects
from store.status import OBJECT_BY_PATH

_SELECT_PARTS = (
    sa.select(objects)
    .where(objects.c.parent == sa.bindparam("at_path"), objects.c.kind.in_(("reservation", "event")))
    .order_by(objects.c.path)
)
_SELECT_TIMERS = sa.select(timers.c.event, timers.c.due).where(timers.c.lease == sa.bindparam("of_lease"))
_DELETE_TIMERS = sa.delete(timers).where(timers.c.event.in_(sa.bindparam("events", expanding=True)))
_INSERT_TIMERS = sa.insert(timers)
_SELECT_NEXT_DUE = (
    sa.select(timers.c.due).where(timers.c.pool == sa.bindparam("of_pool")).order_by(timers.c.due).limit(1)
)
_PENDING_STATUSES = (EventStatus.UNDONE, EventStatus.IN_PROGRESS)


@dataclass(frozen=True)
class LeaseParts:
    """The stored reservations and events of one lease."""

    reservations: list[ObjectRow]
    events: dict[str, ObjectRow]

    def describe_contradiction(self, status: str) -> str:
        """Returns how the parts contradict the lease's status; empty if they do not."""
        return describe_contradiction(status, [row.status for row in self.reservations], self._event_statuses())

    def why_action_refused(self, action: str, status: str) -> str:
        """Returns why the action is refused: contradicting parts, or a lease under ERROR that can only be deleted."""
        return self.describe_contradiction(status) or why_only_delete_allowed(action, self._event_statuses())

    def _event_statuses(self) -> dict[str, str]:
        return {name: row.status for name, row in self.events.items()}

    def due_date_of(self, name: str) -> datetime:
        return datetime.fromisoformat(self.events[name].spec["due"])

    def lease_term(self) -> LeaseTerm:
        return LeaseTerm(self.due_date_of(START), self.due_date_of(END), self.due_date_of(BEFORE_END))


def read_lease_parts(connection: sa.Connection, lease: str) -> LeaseParts:
    """Reads the reservations of a lease, ordered by path, and its events by name."""
    rows = [ObjectRow(*row) for row in connection.execute(_SELECT_PARTS, {"at_path": lease})]
    events = {name_of(row.path): row for row in rows if row.kind == "event"}
    return LeaseParts([row for row in rows if row.kind == "reservation"], events)


def fail_contradictory_lease(connection: sa.Connection, lease: ObjectRow, parts: LeaseParts, at: datetime) -> str:
    """Moves a lease whose parts contradict its status to ERROR, with the reason. Returns the resulting status."""
    status = str(lease.status)
    wrong = parts.describe_contradiction(status)
    if not wrong:
        return status
    message = f"its parts cannot be reconciled: {wrong}"
    change = {"status": LeaseStatus.ERROR.value, "error": message, "changed_at": at}
    told = history_line(lease.path, at, Actor.CONTROLLER, "reconcile", status, LeaseStatus.ERROR, lease.epoch, message)
    OBJECT_BY_PATH.change_objects(connection, {"name": lease.path}, change, [told])
    return LeaseStatus.ERROR


def replace_lease_timers(
    connection: sa.Connection, lease: str, pool: str, status: str, parts: LeaseParts | None
) -> None:
    """Replaces the timers of a lease by those of its events still to come."""
    wanted = _wanted_timers(status, parts) if parts else {}
    there = {str(event): due for event, due in connection.execute(_SELECT_TIMERS, {"of_lease": lease})}
    names = {event_path(lease, name): name for name in wanted}
    if gone := [event for event, due in there.items() if event not in names or wanted[names[event]] != due]:
        connection.execute(_DELETE_TIMERS, {"events": gone})
    new = [name for event, name in names.items() if there.get(event) != wanted[name]]
    insert_timers(connection, lease, pool, {name: wanted[name] for name in new})


def insert_timers(connection: sa.Connection, lease: str, pool: str, dues: Mapping[str, datetime]) -> None:
    """Inserts the timers of events of a lease."""
    rows = [EventTimerRow(event_path(lease, name), lease, pool, name, due)._asdict() for name, due in dues.items()]
    if rows:
        connection.execute(_INSERT_TIMERS, rows)


def _wanted_timers(status: str, parts: LeaseParts) -> dict[str, datetime]:
    if status in (LeaseStatus.TERMINATED, NONE):
        return {}
    names = (END,) if status == LeaseStatus.ERROR else EVENTS
    to_come = [name for name in names if name in parts.events and parts.events[name].status in _PENDING_STATUSES]
    return {name: parts.due_date_of(name) for name in to_come}


def next_due_date(connection: sa.Connection, pool: str) -> datetime | None:
    """Returns the time of the pool's next event, or None."""
    found: datetime | None = connection.execute(_SELECT_NEXT_DUE, {"of_pool": pool}).scalar_one_or_none()
    return found
