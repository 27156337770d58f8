"""Hosts that come, fail, recover and go, and what that means for those who have booked them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from domain.errors import Category, Refused
from domain.leases.spec import HostSpec
from domain.leases.tables import Host, Reservation
from domain.machine import Row
from domain.model import Claim, Grant, Outcome
from domain.paths import short
from store.leases import capacity
from store.leases.booking import wish_of
from store.leases.tables import allocations, bookings, hosts
from store.riders import Extra, Found
from store.schema import objects

HOLDERS_SHOWN = 5


def admit(connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: Found, row: Row) -> Extra:
    """The pool changes in the transaction that admits the change; what is in use is handed over afterwards."""
    host, pool = claim.request.path, claim.request.path.split(":")[1]
    with connection.begin_nested():
        capacity.one_at_a_time(connection, pool)
        if row.action == "remove":
            _nobody_has(connection, host)
            return Extra()
        if row.action == "add":
            assert isinstance(spec, HostSpec)
            _enlist(connection, host, pool, spec)
        _set_working(connection, host, row.action != "fail")
        changed = _reallocate(connection, host, claim.at) if row.action == "fail" else []
        changed += _make_whole(connection, pool, claim.at)
        return Extra(details={"hand_over": _in_use(connection, changed)})


def ended(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Whatever became of the action: only a host that is up is offered."""
    status = connection.execute(sa.select(objects.c.status).where(objects.c.path == grant.path)).scalar_one_or_none()
    if status is None:
        connection.execute(sa.delete(hosts).where(hosts.c.host == grant.path))
    else:
        _set_working(connection, grant.path, status == Host.UP)


def _enlist(connection: sa.Connection, host: str, pool: str, spec: HostSpec) -> None:
    sizes = {"vcpus": spec.vcpus, "memory_mb": spec.memory_mb, "disk_gb": spec.disk_gb}
    profile = _profile(spec)
    connection.execute(sa.insert(hosts).values(host=host, pool=pool, profile=profile, working=True, **sizes))


def _profile(spec: HostSpec) -> str:
    return json.dumps(spec.all_properties(), sort_keys=True)


def _set_working(connection: sa.Connection, host: str, working: bool) -> None:
    connection.execute(sa.update(hosts).where(hosts.c.host == host).values(working=working))


def _nobody_has(connection: sa.Connection, host: str) -> None:
    leases = dict.fromkeys(row["lease"] for row in capacity.held(connection, allocations.c.host == host))
    if leases:
        shown = ", ".join(short(lease) for lease in list(leases)[:HOLDERS_SHOWN])
        more = f" and {len(leases) - HOLDERS_SHOWN} more" if len(leases) > HOLDERS_SHOWN else ""
        raise Refused(
            Category.NOT_ALLOWED,
            f"{short(host)} is booked by {shown}{more}",
            f"wait until they have ended, or give them other hosts: starter host fail {short(host)}",
        )


def _reallocate(connection: sa.Connection, host: str, at: datetime) -> list[str]:
    """Whoever has booked a failed host gets others where there are any, the earliest first. Who gets none misses it."""
    rows = capacity.held(connection, allocations.c.host == host, allocations.c.ends > at)
    touched: list[str] = []
    for row in sorted(rows, key=lambda row: (row["starts"], row["id"])):
        capacity.drop(connection, allocations.c.id == row["id"])
        touched.append(row["reservation"])
    capacity.raise_version(connection, touched)
    return list(dict.fromkeys(touched))


def _make_whole(connection: sa.Connection, pool: str, at: datetime) -> list[str]:
    """Bookings that miss something get what there is, the earliest first. Returns those that got something."""
    have = (
        sa.select(allocations.c.reservation, sa.func.sum(allocations.c.units).label("units"))
        .group_by(allocations.c.reservation)
        .subquery()
    )
    short_of = bookings.c.units - sa.func.coalesce(have.c.units, 0)
    query = (
        sa.select(bookings, short_of.label("missing"))
        .outerjoin(have, have.c.reservation == bookings.c.reservation)
        .where(bookings.c.pool == pool, bookings.c.ends > at, ~bookings.c.closing, short_of > 0)
        .order_by(bookings.c.starts, bookings.c.reservation)
    )
    healed = []
    for row in connection.execute(query).mappings().all():
        if _refill(connection, dict(row), at):
            healed.append(row["reservation"])
    return healed


def _refill(connection: sa.Connection, booking: dict[str, Any], at: datetime) -> bool:
    rest = booking | {"starts": max(booking["starts"], at)}
    places = capacity.find(connection, wish_of(rest, booking["missing"]), booking["began_with"] or ())
    capacity.take(connection, rest, places)
    capacity.raise_version(connection, [booking["reservation"]])
    return bool(places)


def _in_use(connection: sa.Connection, reservations: list[str]) -> list[str]:
    """Those of them that have started: whoever hands over must be told."""
    query = sa.select(objects.c.path).where(
        objects.c.path.in_(reservations), objects.c.status == Reservation.ACTIVE.value
    )
    return sorted(connection.execute(query).scalars()) if reservations else []
