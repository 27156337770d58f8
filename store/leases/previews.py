"""Dry runs of actions on leases and hosts: which hosts and MCIs they concern, and which leases get other hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from domain import registry
from domain.dryrun import PlannedChange, keep_status, plan_requested_change
from domain.leases.messages import LeaseGrantDetails
from domain.leases.tables import ReservationStatus
from domain.model import BeginRequest, Grant
from store.leases.capacity import HELD, JOINING, LEAVING, RETURNING, list_allocations_of_lease
from store.leases.swaps import SWAP_ACTION
from store.queries import read_aggregated_status
from store.rows import find_object
from store.status import update_object_columns

_ACTION_ON_HOSTS = {"create": "book", "end": "release", "delete": "release"}
_ACTION_OF_PHASE = {JOINING: "book", LEAVING: "release", RETURNING: "release"}  # of an update


def preview_lease_action(connection: sa.Connection, claim: BeginRequest, grant: Grant) -> Sequence[PlannedChange]:
    """Shows the terms that an update will leave, which are stored only when it ends. Returns the hosts that a lease
    would book or give back, and the MCIs that it would end."""
    details = LeaseGrantDetails.model_validate(grant.details)
    if grant.action == "update" and details.spec:
        update_object_columns(connection, grant.path, spec=details.spec)
    return [*_plan_hosts(connection, grant), *_plan_ends_of_mcis(connection, grant, details)]


def preview_host_action(connection: sa.Connection, claim: BeginRequest, grant: Grant) -> Sequence[PlannedChange]:
    """Returns the leases that would lose the host or get it, and which hosts they have instead."""
    swaps = LeaseGrantDetails.model_validate(grant.details).swaps
    leases = ((find_object(connection, lease), text) for lease, text in swaps.items())
    return [keep_status(row.path, f"{SWAP_ACTION}: {text}", row.status) for row, text in leases if row]


def _plan_hosts(connection: sa.Connection, grant: Grant) -> Iterator[PlannedChange]:
    allocated = sorted(list_allocations_of_lease(connection, grant.path), key=lambda row: row.phase != HELD)
    told = {row.host: _ACTION_ON_HOSTS.get(grant.action) or _ACTION_OF_PHASE.get(row.phase) for row in allocated}
    for host, action in told.items():
        if action and (row := find_object(connection, host)):
            yield keep_status(host, action, row.status)


def _plan_ends_of_mcis(connection: sa.Connection, grant: Grant, details: LeaseGrantDetails) -> Iterator[PlannedChange]:
    if grant.action not in ("end", "delete"):
        return
    for work in details.reservations:
        if work.mci and work.status != ReservationStatus.PENDING and (row := find_object(connection, work.mci)):
            change = plan_requested_change(work.mci, work.on_end, row.status)
            now, then = (
                read_aggregated_status(connection, work.mci),
                registry.kind_at(work.mci).display_own_status(change.then),
            )
            yield change.model_copy(update={"came_from": now, "then": then})
