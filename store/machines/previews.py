"""Dry runs of the machines family: objects that an action takes along, and machines that leave a node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any, NamedTuple

import sqlalchemy as sa

from domain import registry
from domain.dryrun import PlannedChange, plan_requested_change
from domain.machines.messages import MachineGrantDetails
from domain.machines.orders import RelatedStage, action_stages, related_status_after, related_status_during
from domain.machines.tables import GONE_STATUSES, MACHINE, MEMORY_STATUSES, S
from domain.model import BeginRequest, Grant
from domain.paths import kind_of, name_of
from domain.statetable import NONE
from store.queries import below_condition
from store.schema import IS_MACHINE, json_key_as_text, objects


class _Candidate(NamedTuple):
    """An object that an action may take along."""

    path: str
    status: str
    info: dict[str, Any]


IS_MACHINE_ON_NODE = (
    IS_MACHINE,
    json_key_as_text(objects.c.info, "node") == sa.bindparam("node"),
    objects.c.status.in_(sa.bindparam("statuses", expanding=True)),
)
_SELECT_MACHINES_ON_NODE = sa.select(objects.c.path, objects.c.status).where(*IS_MACHINE_ON_NODE)
_DEPLOYED = [status for status in MACHINE.statuses if status not in (*GONE_STATUSES, S.VIRTUAL)]
_SELECT_STOPPED = (
    sa.select(objects.c.path, objects.c.info)
    .where(objects.c.path.in_(sa.bindparam("paths", expanding=True)), objects.c.status == S.HALTED)
    .order_by(objects.c.path)
)


def preview_related_objects(connection: sa.Connection, claim: BeginRequest, grant: Grant) -> Sequence[PlannedChange]:
    """Returns the objects that an action takes along, stage by stage: disks of a machine, machines of a cloudspace."""
    details = MachineGrantDetails.model_validate(grant.details)
    stages = action_stages(kind_of(grant.path), grant.action, grant.came_from)
    return [
        change
        for stage in stages
        if isinstance(stage, RelatedStage)
        for row in _list_candidates(connection, grant.path, stage, details)
        if not _stays_in_bin(grant, details, row) and (change := _plan_related(stage, row))
    ]


def _list_candidates(
    connection: sa.Connection, path: str, stage: RelatedStage, details: MachineGrantDetails
) -> list[_Candidate]:
    """Returns the objects that a stage may apply to: those named at begin, or all of its kind below the object."""
    select = sa.select(objects.c.path, objects.c.status, objects.c.info).order_by(objects.c.path)
    if not stage.named:
        query = select.where(below_condition(objects.c.path, path), objects.c.kind == stage.kind)
        return [_Candidate(*row) for row in connection.execute(query)]
    query = select.where(objects.c.path.in_(details.named))
    known = {row.path: row for row in starmap(_Candidate, connection.execute(query))}
    rows = (known.get(name, _Candidate(name, NONE, {})) for name in details.named if kind_of(name) == stage.kind)
    return [row._replace(status=NONE) if row.status == S.DESTROYED else row for row in rows]


def _plan_related(stage: RelatedStage, row: _Candidate) -> PlannedChange | None:
    if not (during := related_status_during(stage.kind, stage.action, row.status)):
        return None
    place = str(row.info.get(registry.find_kind(stage.kind).place_key) or "")
    then = related_status_after(stage.kind, stage.action, row.status)
    return PlannedChange(
        path=row.path, action=stage.action, placement=place, came_from=row.status, during=during, then=then
    )


def _stays_in_bin(grant: Grant, details: MachineGrantDetails, row: _Candidate) -> bool:
    """Tells whether an object was deleted before its cloudspace, with which it is not restored."""
    restored = (kind_of(grant.path), grant.action) == ("cloudspace", "restore")
    return restored and row.info.get("bin") != details.bin


def preview_node_action(connection: sa.Connection, claim: BeginRequest, grant: Grant) -> Sequence[PlannedChange]:
    """Returns what the machines on a node would be told: to move or stop, or to start again."""
    details = MachineGrantDetails.model_validate(grant.details)
    if grant.action == "enable":
        rows = connection.execute(_SELECT_STOPPED, {"paths": details.stopped}).all()
        return [plan_requested_change(path, "start", S.HALTED, str(info.get("node", ""))) for path, info in rows]
    if grant.action not in ("maintain", "decommission"):
        return ()
    node = name_of(grant.path)
    statuses = _DEPLOYED if grant.action == "decommission" else MEMORY_STATUSES
    action = "stop" if details.mode == "stop" else "migrate"
    rows = connection.execute(_SELECT_MACHINES_ON_NODE, {"node": node, "statuses": statuses}).all()
    changes = [plan_requested_change(path, action, status, node) for path, status in sorted(map(tuple, rows))]
    if details.mode == "move-or-stop":
        return [change.model_copy(update={"action": "migrate, or stop"}) for change in changes]
    return changes
