"""Reads and writes of surveys. Writes are compare and set: an action that began meanwhile wins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.errors import Category, Refused
from domain.mci.messages import SurveyedVm, SurveyPlan, SurveyRequest, VmCorrection
from domain.mci.tables import RECONCILED_STATUSES, SURVEYED_STATUSES, VM
from domain.model import Chunk
from domain.paths import parent_of
from domain.statetable import NONE, Actor
from store.dbtime import resolve_write_time
from store.grants import SELECT_MEMBER_RANGES, ranges_to_chunks
from store.history import history_line
from store.mci.connections import list_mci_places
from store.mci.groups import count_vms
from store.schema import objects
from store.status import OBJECT_BY_PATH

_SELECT_VMS_IN_STATUS = (
    sa.select(objects.c.path, objects.c.status, objects.c.epoch, objects.c.target_action, objects.c.info)
    .where(
        objects.c.path.between(sa.bindparam("first"), sa.bindparam("last")),
        objects.c.kind == VM.kind,
        objects.c.placement == sa.bindparam("place"),
        objects.c.status.in_(sa.bindparam("statuses", expanding=True)),
    )
    .order_by(objects.c.path)
)
_SELECT_PLACES = sa.select(objects.c.placement).where(objects.c.parent == sa.bindparam("which")).distinct()
_LOCK_VMS_AT_REST = (
    sa.select(objects.c.path, objects.c.status, objects.c.epoch)
    .where(objects.c.path.in_(sa.bindparam("names", expanding=True)), objects.c.target_action == NONE)
    .order_by(objects.c.path)
    .with_for_update()
)
# begin locks an MCI before it judges its VMs, so this lock serialises surveys with it.
_LOCK_MCIS = (
    sa.select(objects.c.path, objects.c.target_action)
    .where(objects.c.path.in_(sa.bindparam("names", expanding=True)))
    .order_by(objects.c.path)
    .with_for_update()
)


def plan_survey(connection: sa.Connection, survey: SurveyRequest) -> SurveyPlan:
    """Plans a survey: the chunks of VMs to ask clouds about, and the places to search for orphans."""
    registry.kind_at(survey.path)
    found = connection.execute(sa.select(objects.c.path).where(objects.c.path == survey.path)).scalar()
    if found is None:
        hint = "see what there is: starter mci list"
        raise Refused(Category.NOT_FOUND, f"there is no such MCI: {survey.path}", hint)
    statuses = RECONCILED_STATUSES if survey.reconcile else SURVEYED_STATUSES
    which = {"which": survey.path, "member": VM.kind, "statuses": [str(status) for status in statuses]}
    chunks = ranges_to_chunks([(*row,) for row in connection.execute(SELECT_MEMBER_RANGES, which)], 0, "observe")
    saved = count_vms(connection, survey.path) - sum(chunk.count for chunk in chunks)
    places = {
        *connection.execute(_SELECT_PLACES, {"which": survey.path}).scalars(),
        *list_mci_places(connection, survey.path),
    }
    return SurveyPlan(path=survey.path, chunks=chunks, saved=saved, places=sorted(places))


def list_vms_in_status(connection: sa.Connection, chunk: Chunk, statuses: Sequence[str]) -> list[SurveyedVm]:
    """Returns the VMs of a chunk that are in one of these statuses."""
    which = {"first": chunk.first, "last": chunk.last, "place": chunk.placement, "statuses": list(map(str, statuses))}
    return [SurveyedVm(*row) for row in connection.execute(_SELECT_VMS_IN_STATUS, which)]


def apply_corrections(
    connection: sa.Connection, corrections: Sequence[VmCorrection], at: datetime
) -> list[VmCorrection]:
    """Writes the corrections whose VM and MCI are unchanged and at rest. Returns those written."""
    at = resolve_write_time(connection, at)
    groups = sorted({parent_of(correction.known.path) or "" for correction in corrections})
    if not groups:
        return []
    at_rest = {path for path, doing in connection.execute(_LOCK_MCIS, {"names": groups}) if doing == NONE}
    names = [correction.known.path for correction in corrections if parent_of(correction.known.path) in at_rest]
    now = {path: (status, epoch) for path, status, epoch in connection.execute(_LOCK_VMS_AT_REST, {"names": names})}
    made = [
        correction
        for correction in corrections
        if now.get(correction.known.path) == (correction.known.status, correction.known.epoch)
    ]
    told = [
        {"name": correction.known.path, "info": correction.info}
        for correction in made
        if correction.status == correction.known.status
    ]
    moved = [correction for correction in made if correction.status != correction.known.status]
    changes = [*told, *(_corrected_columns(correction, at) for correction in moved)]
    OBJECT_BY_PATH.change_each_object(connection, changes, [_correction_line(correction, at) for correction in moved])
    return made


def _corrected_columns(correction: VmCorrection, at: datetime) -> dict[str, Any]:
    error = correction.message if correction.status == "Undefined" else ""
    return {
        "name": correction.known.path,
        "status": correction.status,
        "info": correction.info,
        "changed_at": at,
        "error": error,
    }


def _correction_line(correction: VmCorrection, at: datetime) -> dict[str, Any]:
    vm = correction.known
    return history_line(vm.path, at, Actor.CLOUD, "observe", vm.status, correction.status, vm.epoch, correction.message)
