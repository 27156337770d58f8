"""Reads and writes of surveys. Writes are compare and set: an action that began meanwhile wins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.errors import Category, Refused
from domain.mci import VM
from domain.mci.messages import Correction, Survey, SurveyedVm, SurveyPlan
from domain.mci.tables import ASKED, RECONCILED
from domain.model import Chunk
from domain.paths import parent_of
from domain.statetable import NONE, Actor
from store.clock import written_at
from store.grants import RANGES, chunks_of
from store.history import history_line
from store.mci.connections import places_of
from store.mci.groups import count_vms
from store.schema import objects
from store.status import ONE

_SEEN = (
    sa.select(objects.c.path, objects.c.status, objects.c.epoch, objects.c.target_action, objects.c.info)
    .where(
        objects.c.path.between(sa.bindparam("first"), sa.bindparam("last")),
        objects.c.kind == VM.kind,
        objects.c.placement == sa.bindparam("place"),
        objects.c.status.in_(sa.bindparam("statuses", expanding=True)),
    )
    .order_by(objects.c.path)
)
_IN_PLACE = sa.select(objects.c.path, objects.c.info).where(
    objects.c.parent == sa.bindparam("which"), objects.c.placement == sa.bindparam("place"), objects.c.kind == VM.kind
)
_PLACES = sa.select(objects.c.placement).where(objects.c.parent == sa.bindparam("which")).distinct()
_NOW = (
    sa.select(objects.c.path, objects.c.status, objects.c.epoch)
    .where(objects.c.path.in_(sa.bindparam("names", expanding=True)), objects.c.target_action == NONE)
    .order_by(objects.c.path)
    .with_for_update()
)
# begin locks an MCI before it judges its VMs, so this lock serialises surveys with it.
_GROUPS_AT_REST = (
    sa.select(objects.c.path, objects.c.target_action)
    .where(objects.c.path.in_(sa.bindparam("names", expanding=True)))
    .order_by(objects.c.path)
    .with_for_update()
)


def plan_survey(connection: sa.Connection, survey: Survey) -> SurveyPlan:
    """Plans a survey: the chunks of VMs to ask clouds about, and the places to search for orphans."""
    registry.kind_at(survey.path)
    found = connection.execute(sa.select(objects.c.path).where(objects.c.path == survey.path)).scalar()
    if found is None:
        hint = "see what there is: starter mci list"
        raise Refused(Category.NOT_FOUND, f"there is no such MCI: {survey.path}", hint)
    statuses = RECONCILED if survey.reconcile else ASKED
    which = {"which": survey.path, "member": VM.kind, "statuses": [str(status) for status in statuses]}
    chunks = chunks_of([(*row,) for row in connection.execute(RANGES, which)], 0, "observe")
    saved = count_vms(connection, survey.path) - sum(chunk.count for chunk in chunks)
    places = {*connection.execute(_PLACES, {"which": survey.path}).scalars(), *places_of(connection, survey.path)}
    return SurveyPlan(path=survey.path, chunks=chunks, saved=saved, places=sorted(places))


def vms_in_status(connection: sa.Connection, chunk: Chunk, statuses: Sequence[str]) -> list[SurveyedVm]:
    """Returns the VMs of a chunk that are in one of these statuses."""
    which = {"first": chunk.first, "last": chunk.last, "place": chunk.placement, "statuses": list(map(str, statuses))}
    return [SurveyedVm(*row) for row in connection.execute(_SEEN, which)]


def cloud_ids(connection: sa.Connection, path: str, place: str) -> dict[str, str]:
    """Returns the recorded VMs of an MCI in a place: path -> cloud id."""
    rows = connection.execute(_IN_PLACE, {"which": path, "place": place})
    return {found: info.get("cloud_id", "") for found, info in rows}


def apply_corrections(connection: sa.Connection, corrections: Sequence[Correction], at: datetime) -> list[Correction]:
    """Writes the corrections whose VM and MCI are unchanged and at rest. Returns those written."""
    at = written_at(connection, at)
    groups = sorted({parent_of(each.known.path) or "" for each in corrections})
    if not groups:
        return []
    at_rest = {path for path, doing in connection.execute(_GROUPS_AT_REST, {"names": groups}) if doing == NONE}
    names = [each.known.path for each in corrections if parent_of(each.known.path) in at_rest]
    now = {path: (status, epoch) for path, status, epoch in connection.execute(_NOW, {"names": names})}
    made = [each for each in corrections if now.get(each.known.path) == (each.known.status, each.known.epoch)]
    told = [{"name": each.known.path, "info": each.info} for each in made if each.status == each.known.status]
    moved = [each for each in made if each.status != each.known.status]
    changes = [*told, *(_moved(each, at) for each in moved)]
    ONE.change_each(connection, changes, [_line(each, at) for each in moved])
    return made


def _moved(each: Correction, at: datetime) -> dict[str, Any]:
    error = each.message if each.status == "Undefined" else ""
    return {"name": each.known.path, "status": each.status, "info": each.info, "changed_at": at, "error": error}


def _line(each: Correction, at: datetime) -> dict[str, Any]:
    known = each.known
    return history_line(known.path, at, Actor.CLOUD, "observe", known.status, each.status, known.epoch, each.message)
