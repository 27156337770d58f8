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
from store.rows import LOCK_AT_REST, find_object
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
    if find_object(connection, survey.path) is None:
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
    now = {path: (status, epoch) for path, status, epoch in connection.execute(LOCK_AT_REST, {"names": names})}
    made = [
        correction
        for correction in corrections
        if now.get(correction.known.path) == (correction.known.status, correction.known.epoch)
    ]
    changes: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for correction in made:
        vm, to, message = correction.known, correction.status, correction.message
        changes.append({"name": vm.path, "info": correction.info})
        if to != vm.status:
            changes[-1] |= {"status": to, "changed_at": at, "error": message if to == "Undefined" else ""}
            lines.append(history_line(vm.path, at, Actor.CLOUD, "observe", vm.status, to, vm.epoch, message))
    OBJECT_BY_PATH.change_each_object(connection, changes, lines)
    return made
