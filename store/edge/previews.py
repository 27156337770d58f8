"""Dry runs of actions on cloudlets and clusters: the apps that would be created elsewhere, or deleted."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from domain.dryrun import PlannedChange, keep_status, plan_requested_change
from domain.edge.reports import InstanceGrantDetails
from domain.edge.specs import MaintenanceSpec
from domain.edge.tables import S
from domain.model import BeginRequest, Grant
from domain.statetable import NONE
from store.edge.queries import plan_failover
from store.rows import find_object
from store.status import update_object_columns


def preview_cloudlet_action(connection: sa.Connection, claim: BeginRequest, grant: Grant) -> Sequence[PlannedChange]:
    """Shows what an upgrade or a rekey will leave. Returns the apps that would be created on other cloudlets before a
    maintenance begins."""
    if grant.action in ("upgrade", "rekey") and (row := find_object(connection, grant.path)):
        update_object_columns(connection, grant.path, spec={**row.spec, **(claim.request.spec or {})})
    if grant.action != "maintenance-start" or not MaintenanceSpec.model_validate(claim.request.spec or {}).failover:
        return ()
    apps = plan_failover(connection, grant.path).apps
    return [
        plan_requested_change(app.to, "create", NONE) if app.to else keep_status(app.path, "cannot fail over", S.READY)
        for app in apps
    ]


def preview_instance_action(connection: sa.Connection, claim: BeginRequest, grant: Grant) -> Sequence[PlannedChange]:
    """Shows the spec that an update will leave, which is stored only when it ends. Returns the apps that would be
    deleted with their cluster."""
    details = InstanceGrantDetails.model_validate(grant.details)
    if grant.action == "update":
        update_object_columns(connection, grant.path, spec=details.spec)
    rows = (find_object(connection, path) for path in details.apps)
    return [plan_requested_change(row.path, "delete", row.status) for row in rows if row]
