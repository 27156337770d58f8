"""Hooks of the leases family: admission and end of actions on leases, their events, and hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

import sqlalchemy as sa
from pydantic import BaseModel

from domain.errors import Category, Refused
from domain.leases.dates import stamp
from domain.leases.messages import LeaseTerms, ReservationWork
from domain.leases.names import event_path, reservation_path
from domain.leases.specs import (
    EventFiring,
    LeaseChange,
    LeaseLimits,
    LeaseSpec,
    LeaseTerm,
    PhysicalHosts,
    changed_term,
    term,
)
from domain.leases.tables import BEFORE_END, END, START, EventStatus, LeaseStatus, ReservationStatus
from domain.model import Claim, Grant, Move, NewObject, Outcome, Result
from domain.paths import name_of, parent_of
from domain.statetable import NONE, Row
from store.hooks import GrantExtras, Hooks, MaybeRow
from store.leases import booking, changes, hosts, parts
from store.leases.capacity import held_by, locked, one_at_a_time
from store.leases.parts import LeaseParts, next_due
from store.leases.tables import bookings
from store.rows import find_object

_BEGAN = sa.update(bookings).where(bookings.c.reservation == sa.bindparam("which"))
_BOOKING = ("create", "update")  # the others write nothing before a refusal
SOON = timedelta(minutes=1)  # the clock is always woken for an event this near


def ended(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Ends an action on a lease: checks its parts, releases the bookings of deleted reservations, sets the timers."""
    lease = find_object(connection, grant.path)
    if lease is None:
        booking.release(connection, grant.path)
        parts.set_timers(connection, grant.path, "", NONE, None)
        return
    now = parts.read(connection, grant.path)
    status = parts.reconcile(connection, lease, now, at)
    if grant.action == "start":
        _remember_hosts(connection, grant.path)
    if grant.action == "update":
        terms = LeaseTerms.model_validate(grant.details)
        changes.settle(connection, grant.path, terms, outcome.result is Result.SUCCEEDED)
    if grant.action == "create" and status == LeaseStatus.ERROR:
        booking.release(connection, grant.path)
    over = [row.path for row in now.reservations if row.status == ReservationStatus.DELETED]
    if over:
        booking.release(connection, grant.path, over)
    parts.set_timers(connection, grant.path, lease.spec["pool"], status, now)


def admit_event(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row
) -> GrantExtras:
    """Admits an event only at the time when it is due."""
    assert found
    _on_time(cast(EventFiring, spec), name_of(found.path), found.spec["due"])
    return GrantExtras()


def ended_event(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Sets the timers of an event's lease again."""
    path = str(parent_of(grant.path))
    lease = find_object(connection, path)
    if lease is not None:
        parts.set_timers(connection, path, lease.spec["pool"], lease.status, parts.read(connection, path))


def _create(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, limits: LeaseLimits
) -> GrantExtras:
    assert isinstance(spec, LeaseSpec)
    lease = claim.request.path
    dates = term(spec, claim.at, limits)
    _lock_project_and_pool(connection, lease.split(":")[1], spec.pool)
    wanted = spec.wanted()
    number_of_hosts = sum(each.min for each in wanted if isinstance(each, PhysicalHosts))
    booking.check_quota(connection, lease, dates, number_of_hosts, limits)
    before = next_due(connection, spec.pool)
    births = []
    for number, each in enumerate(wanted, 1):
        path = reservation_path(lease, number)
        booking.book(connection, path, claim.run, spec.pool, each, dates)
        births.append(NewObject(path, "reservation", "", each.model_dump(mode="json")))
    for name, due in _dues(dates).items():
        births.append(NewObject(event_path(lease, name), "event", "", {"due": stamp(due)}))
    connection.execute(parts.NEW_TIMERS, [_timer(lease, spec.pool, name, due) for name, due in _dues(dates).items()])
    kept = {"name": spec.name or name_of(lease), "pool": spec.pool, **_dates_info(dates)}
    terms = LeaseTerms(pool=spec.pool, wake=_wake(before, dates.start, claim.at))
    return GrantExtras(births=births, spec=kept, details=terms)


def _update(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, limits: LeaseLimits
) -> GrantExtras:
    """Admits an update of a lease: allocates what it needs. Readers see no change before it ends."""
    assert found
    assert isinstance(spec, LeaseChange)
    lease, pool, now = found.path, found.spec["pool"], parts.read(connection, found.path)
    named = {**found.spec, **({"name": spec.name} if spec.name else {})}
    if spec.only_name():
        return GrantExtras(details=LeaseTerms(pool=pool, wake=False, spec=named))
    if found.status == LeaseStatus.TERMINATED:
        raise Refused(Category.NOT_ALLOWED, "the lease has ended: only its name can change", "create another lease")
    if wrong := now.why_refused("update", found.status):
        return GrantExtras(details=LeaseTerms(contradiction=wrong))
    started = now.events[START].status != EventStatus.UNDONE
    dates = changed_term(spec, now.term(), started, claim.at, limits)
    _lock_project_and_pool(connection, lease.split(":")[1], pool)
    before = next_due(connection, pool)
    taken = changes.prepare(connection, lease, now, spec, dates, started)
    booking.check_quota(connection, lease, dates, changes.hosts_of(connection, lease, taken.plans), limits)
    to_come = (due for name, due in _dues(dates).items() if due > claim.at or (name == START and not started))
    more = {
        "pool": pool,
        "wake": _wake(before, min(to_come, default=claim.at), claim.at),
        "spec": {**named, **_dates_info(dates)},
        "moves": [*changes.move_events(connection, now, _dues(dates), found), *taken.moves],
    }
    return GrantExtras(details=taken.model_copy(update=more))


def _start(connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow) -> GrantExtras:
    assert found
    now = parts.read(connection, found.path)
    if wrong := now.wrong(found.status):
        return GrantExtras(details=LeaseTerms(contradiction=wrong))
    _on_time(cast(EventFiring, spec), START, now.events[START].spec["due"])
    entering = Move(path=now.events[START].path, to=EventStatus.IN_PROGRESS, action="start")
    return GrantExtras(details=_work(now), moves=[entering])


def _end(connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow) -> GrantExtras:
    """Admits the end of a lease: by the clock, by a user before its time, or after a failed start or end."""
    assert found
    now = parts.read(connection, found.path)
    if wrong := now.why_refused("end", found.status):
        return GrantExtras(details=LeaseTerms(contradiction=wrong))
    firing = cast(EventFiring, spec)
    if firing.due:
        _on_time(firing, END, now.events[END].spec["due"])
    moves = [Move(path=now.events[END].path, to=EventStatus.IN_PROGRESS, action="end")]
    if now.events[START].status != EventStatus.DONE:
        told = "closed: the lease ends without having started well"
        moves.append(Move(path=now.events[START].path, to=EventStatus.DONE, message=told))
    never = [row for row in now.reservations if row.status == ReservationStatus.PENDING]
    told = "its lease ends without having started; whatever it may hold is taken back"
    moves += [Move(path=row.path, to=ReservationStatus.ERROR, message=told) for row in never]
    return GrantExtras(details=_work(now), moves=moves)


def _delete(connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow) -> GrantExtras:
    """Admits a delete in every status; also frees bookings whose reservation does not exist any more."""
    assert found
    work = _work(parts.read(connection, found.path))
    known = {each.path for each in work.reservations}
    lost = [row for row in locked(connection, found.path) if row.units and row.reservation not in known]
    gone = {"status": ReservationStatus.ERROR, "resource_type": "physical:host"}
    more = [ReservationWork(path=row.reservation, **gone) for row in lost]
    return GrantExtras(details=work.model_copy(update={"reservations": [*work.reservations, *more]}))


_Admit = Callable[[sa.Connection, Claim, BaseModel | None, MaybeRow], GrantExtras]


def _timer(lease: str, pool: str, name: str, due: datetime) -> dict[str, Any]:
    return {"event": event_path(lease, name), "lease": lease, "pool": pool, "name": name, "due": due}


def _lock_project_and_pool(connection: sa.Connection, project: str, pool: str) -> None:
    """Serialises quota checks of the project and allocations in the pool until the transaction ends."""
    one_at_a_time(connection, f"of project {project}")
    one_at_a_time(connection, pool)


def _dues(dates: LeaseTerm) -> dict[str, datetime]:
    return {START: dates.start, BEFORE_END: dates.before_end, END: dates.end}


def _dates_info(dates: LeaseTerm) -> dict[str, str]:
    return {"start": stamp(dates.start), "end": stamp(dates.end), "before_end": stamp(dates.before_end)}


def _wake(before: datetime | None, earliest: datetime, at: datetime) -> bool:
    """Returns whether the pool's clock must be woken, because it would wake later than the earliest event here."""
    first = min(before, earliest) if before else earliest
    return before is None or earliest < before or first <= at + SOON


def _work(now: LeaseParts) -> LeaseTerms:
    """Returns reservations and events with their statuses, for the workflow to start, end or free."""
    work = [ReservationWork(path=row.path, status=row.status, **_kind(row.spec)) for row in now.reservations]
    return LeaseTerms(reservations=work, events={name: row.status for name, row in now.events.items()})


def _kind(spec: dict[str, Any]) -> dict[str, Any]:
    names = ("resource_type", "mci", "spec", "on_end")
    return {name: spec[name] for name in names if name in spec}


def _on_time(firing: EventFiring, name: str, due: str) -> None:
    if firing.due != due:
        what = f"it was due at {firing.due}, and has been moved" if firing.due else "only the clock does that"
        raise Refused(
            Category.NOT_ALLOWED,
            f"{name} comes at {due}: {what}",
            "to have it earlier: starter lease update --start now",
        )


def _remember_hosts(connection: sa.Connection, lease: str) -> None:
    """Stores the hosts of each reservation at its start, to show later whether they have changed."""
    locked(connection, lease)  # serialises with a host that fails now
    began: defaultdict[str, list[str]] = defaultdict(list)
    for row in held_by(connection, lease):
        began[row.reservation].append(row.host)
    if began:
        connection.execute(_BEGAN, [{"which": path, "began_with": names} for path, names in began.items()])


def hooks(limits: LeaseLimits) -> dict[str, Hooks]:
    """Returns the family's hooks by kind. Requests beyond these limits are refused."""
    by_action: dict[str, _Admit] = {
        "create": partial(_create, limits=limits),
        "update": partial(_update, limits=limits),
        "start": _start,
        "end": _end,
        "delete": _delete,
    }

    def admit(
        connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row
    ) -> GrantExtras:
        """Admits an action on a lease. A refusal rolls back what the hook has booked."""
        with connection.begin_nested() if row.action in _BOOKING else nullcontext():
            return by_action[row.action](connection, claim, spec, found)

    return {
        "lease": Hooks(admit=admit, ended=ended),
        "event": Hooks(admit=admit_event, ended=ended_event),
        "host": Hooks(admit=hosts.admit, ended=hosts.ended),
    }
