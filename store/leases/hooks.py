"""Hooks of the leases family: admission and end of actions on leases, their events, and hosts."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import cast

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.leases.dates import format_date
from domain.leases.messages import LeaseGrantDetails, ReservationWork
from domain.leases.names import event_path, reservation_path
from domain.leases.specs import (
    EventFiring,
    HostReservation,
    LeaseChange,
    LeaseLimits,
    LeaseSpec,
    LeaseTerm,
    MciReservation,
    term_after_change,
    term_of_new_lease,
)
from domain.leases.tables import BEFORE_END, END, START, EventStatus, LeaseStatus, ReservationStatus
from domain.model import ActionResult, Grant, Move, NewObject, Outcome
from domain.paths import name_of, parent_of, short_path
from domain.simulated import simulated_provider_refusal
from domain.statetable import NONE
from store.hooks import AdmissionFacts, AdmitHook, GrantExtras, Hooks
from store.leases import booking, hosts, parts, updates
from store.leases.capacity import list_allocations_of_lease, lock_bookings_of_lease, serialize_pool_allocations
from store.leases.parts import LeaseParts, next_due_date
from store.leases.previews import preview_host_action, preview_lease_action
from store.leases.tables import bookings
from store.rows import find_object
from store.schema import ObjectRow

_UPDATE_BOOKING = sa.update(bookings).where(bookings.c.reservation == sa.bindparam("which"))
_BOOKING_ACTIONS = ("create", "update")  # the others write nothing before a refusal
_EARLIER = {
    START: "starter lease update {} --start now",
    BEFORE_END: "starter lease update {} --before-end now",
    END: "starter lease update {} --end now",
}
SOON_ENOUGH = timedelta(minutes=1)  # the clock is always woken for an event this near


def finish_lease_action(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Ends an action on a lease: checks its parts, releases the bookings of deleted reservations, sets the timers."""
    lease = find_object(connection, grant.path)
    if lease is None:
        booking.release_bookings(connection, grant.path)
        parts.replace_lease_timers(connection, grant.path, "", NONE, None)
        return
    now = parts.read_lease_parts(connection, grant.path)
    status = parts.fail_contradictory_lease(connection, lease, now, at)
    if grant.action == "start":
        _record_initial_hosts(connection, grant.path)
    if grant.action == "update":
        terms = LeaseGrantDetails.model_validate(grant.details)
        updates.finish_lease_update(connection, grant.path, terms, outcome.result is ActionResult.SUCCEEDED)
    if grant.action == "create" and status == LeaseStatus.ERROR:
        booking.release_bookings(connection, grant.path)
    over = [row.path for row in now.reservations if row.status == ReservationStatus.DELETED]
    if over:
        booking.release_bookings(connection, grant.path, over)
    parts.replace_lease_timers(connection, grant.path, lease.spec["pool"], status, now)


def admit_event(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Admits an event only at the time when it is due."""
    assert facts.object_row
    _check_due_date(facts, facts.object_row)
    return GrantExtras()


def finish_event_action(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Sets the timers of an event's lease again."""
    path = str(parent_of(grant.path))
    lease = find_object(connection, path)
    if lease is not None:
        parts.replace_lease_timers(
            connection, path, lease.spec["pool"], lease.status, parts.read_lease_parts(connection, path)
        )


def _admit_create(connection: sa.Connection, facts: AdmissionFacts, limits: LeaseLimits) -> GrantExtras:
    claim, spec = facts.claim, facts.spec
    assert isinstance(spec, LeaseSpec)
    lease = claim.request.path
    dates = term_of_new_lease(spec, claim.at, limits)
    _lock_project_and_pool(connection, lease.split(":")[1], spec.pool)
    wanted = spec.reservation_specs()
    if claim.no_simulation and not all(isinstance(each, MciReservation) for each in wanted):
        raise simulated_provider_refusal(f"the host site of pool {spec.pool}")
    number_of_hosts = sum(each.min for each in wanted if isinstance(each, HostReservation))
    booking.check_quota(connection, lease, dates, number_of_hosts, limits)
    before = next_due_date(connection, spec.pool)
    births = []
    for number, each in enumerate(wanted, 1):
        path = reservation_path(lease, number)
        booking.book_reservation(connection, path, claim.run, spec.pool, each, dates)
        births.append(NewObject(path, "reservation", "", each.model_dump(mode="json")))
    for name, due in _due_dates(dates).items():
        births.append(NewObject(event_path(lease, name), "event", "", {"due": format_date(due)}))
    parts.insert_timers(connection, lease, spec.pool, _due_dates(dates))
    kept = {"name": spec.name or name_of(lease), "pool": spec.pool, **_term_info(dates)}
    terms = LeaseGrantDetails(pool=spec.pool, wake=_wake_details(before, dates.start, claim.at))
    return GrantExtras(new_objects=births, spec=kept, details=terms)


def _admit_update(connection: sa.Connection, facts: AdmissionFacts, limits: LeaseLimits) -> GrantExtras:
    """Admits an update of a lease: allocates what it needs. Readers see no change before it ends."""
    claim, spec, object_row, _ = facts
    assert object_row
    assert isinstance(spec, LeaseChange)
    lease, pool, now = object_row.path, object_row.spec["pool"], parts.read_lease_parts(connection, object_row.path)
    named = {**object_row.spec, **({"name": spec.name} if spec.name else {})}
    if spec.changes_only_name():
        told = updates.describe_new_values(object_row.spec, named)
        return GrantExtras(details=LeaseGrantDetails(pool=pool, wake=False, spec=named, changes=told))
    if object_row.status == LeaseStatus.TERMINATED:
        raise Refused(Category.NOT_ALLOWED, "the lease has ended: only its name can change", "create another lease")
    if wrong := now.why_action_refused("update", object_row.status):
        return GrantExtras(details=LeaseGrantDetails(contradiction=wrong))
    started = now.events[START].status != EventStatus.UNDONE
    dates = term_after_change(spec, now.lease_term(), started, claim.at, limits)
    _lock_project_and_pool(connection, lease.split(":")[1], pool)
    before = next_due_date(connection, pool)
    taken = updates.allocate_lease_update(connection, lease, now, spec, dates, started)
    booking.check_quota(
        connection, lease, dates, updates.count_hosts_after_update(connection, lease, taken.plans), limits
    )
    to_come = (due for name, due in _due_dates(dates).items() if due > claim.at or (name == START and not started))
    after = {**named, **_term_info(dates)}
    more = {
        "pool": pool,
        "changes": [*updates.describe_new_values(object_row.spec, after), *taken.changes],
        "wake": _wake_details(before, min(to_come, default=claim.at), claim.at),
        "spec": after,
        "moves": [*updates.plan_event_moves(connection, now, _due_dates(dates), object_row), *taken.moves],
    }
    return GrantExtras(details=taken.model_copy(update=more))


def _admit_start(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    assert facts.object_row
    now = parts.read_lease_parts(connection, facts.object_row.path)
    if wrong := now.describe_contradiction(facts.object_row.status):
        return GrantExtras(details=LeaseGrantDetails(contradiction=wrong))
    _check_due_date(facts, now.events[START])
    entering = Move(path=now.events[START].path, to=EventStatus.IN_PROGRESS, action="start")
    return GrantExtras(details=_work_details(now), moves=[entering])


def _admit_end(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Admits the end of a lease: by the clock, by a user before its time, or after a failed start or end."""
    assert facts.object_row
    now = parts.read_lease_parts(connection, facts.object_row.path)
    if wrong := now.why_action_refused("end", facts.object_row.status):
        return GrantExtras(details=LeaseGrantDetails(contradiction=wrong))
    if cast(EventFiring, facts.spec).due:
        _check_due_date(facts, now.events[END])
    moves = [Move(path=now.events[END].path, to=EventStatus.IN_PROGRESS, action="end")]
    if now.events[START].status != EventStatus.DONE:
        told = "closed: the lease ends without having started well"
        moves.append(Move(path=now.events[START].path, to=EventStatus.DONE, message=told))
    never = [row for row in now.reservations if row.status == ReservationStatus.PENDING]
    told = "its lease ends without having started; whatever it may hold is taken back"
    moves += [Move(path=row.path, to=ReservationStatus.ERROR, message=told) for row in never]
    return GrantExtras(details=_work_details(now), moves=moves)


def _admit_delete(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Admits a delete in every status; also frees bookings whose reservation does not exist any more."""
    lease = facts.claim.request.path
    work = _work_details(parts.read_lease_parts(connection, lease))
    known = {reservation.path for reservation in work.reservations}
    lost = [row for row in lock_bookings_of_lease(connection, lease) if row.units and row.reservation not in known]
    gone = {"status": ReservationStatus.ERROR, "resource_type": "physical:host"}
    more = [ReservationWork(path=row.reservation, **gone) for row in lost]
    return GrantExtras(details=work.model_copy(update={"reservations": [*work.reservations, *more]}))


def _lock_project_and_pool(connection: sa.Connection, project: str, pool: str) -> None:
    """Serialises quota checks of the project and allocations in the pool until the transaction ends."""
    serialize_pool_allocations(connection, f"of project {project}")
    serialize_pool_allocations(connection, pool)


def _due_dates(dates: LeaseTerm) -> dict[str, datetime]:
    return {START: dates.start, BEFORE_END: dates.before_end, END: dates.end}


def _term_info(dates: LeaseTerm) -> dict[str, str]:
    return {
        "start": format_date(dates.start),
        "end": format_date(dates.end),
        "before_end": format_date(dates.before_end),
    }


def _wake_details(before: datetime | None, earliest: datetime, at: datetime) -> bool:
    """Returns whether the pool's clock must be woken, because it would wake later than the earliest event here."""
    first = min(before, earliest) if before else earliest
    return before is None or earliest < before or first <= at + SOON_ENOUGH


def _work_details(now: LeaseParts) -> LeaseGrantDetails:
    """Returns reservations and events with their statuses, for the workflow to start, end or free."""
    names = ("resource_type", "mci", "spec", "on_end")
    work = [
        ReservationWork(
            path=row.path, status=row.status, **{name: row.spec[name] for name in names if name in row.spec}
        )
        for row in now.reservations
    ]
    return LeaseGrantDetails(reservations=work, events={name: row.status for name, row in now.events.items()})


def _check_due_date(facts: AdmissionFacts, event: ObjectRow) -> None:
    asked, due, name = cast(EventFiring, facts.spec).due, event.spec["due"], name_of(event.path)
    if asked != due:
        what = f"it was due at {asked}, and has been moved" if asked else "only the clock does that"
        raise Refused(
            Category.NOT_ALLOWED,
            f"{name} comes at {due}: {what}",
            f"to have it earlier: {_EARLIER[name].format(short_path(str(parent_of(event.path))))}",
        )


def _record_initial_hosts(connection: sa.Connection, lease: str) -> None:
    """Stores the hosts of each reservation at its start, to show later whether they have changed."""
    lock_bookings_of_lease(connection, lease)  # serialises with a host that fails now
    began: defaultdict[str, list[str]] = defaultdict(list)
    for row in list_allocations_of_lease(connection, lease):
        began[row.reservation].append(row.host)
    if began:
        connection.execute(_UPDATE_BOOKING, [{"which": path, "began_with": names} for path, names in began.items()])


def lease_hooks(limits: LeaseLimits) -> dict[str, Hooks]:
    """Returns the family's hooks by kind. Requests beyond these limits are refused."""
    by_action: dict[str, AdmitHook] = {
        "create": partial(_admit_create, limits=limits),
        "update": partial(_admit_update, limits=limits),
        "start": _admit_start,
        "end": _admit_end,
        "delete": _admit_delete,
    }

    def admit(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
        """Admits an action on a lease. A refusal rolls back what the hook has booked."""
        with connection.begin_nested() if facts.row.action in _BOOKING_ACTIONS else nullcontext():
            return by_action[facts.row.action](connection, facts)

    return {
        "lease": Hooks(admit=admit, on_finish=finish_lease_action, rehearse=preview_lease_action),
        "event": Hooks(admit=admit_event, on_finish=finish_event_action),
        "host": Hooks(admit=hosts.begin_host_action, on_finish=hosts.finish_host_action, rehearse=preview_host_action),
    }
