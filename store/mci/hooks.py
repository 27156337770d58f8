"""Hooks of the MCI family: connections that an action uses, limits of scaling, orphans."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import sqlalchemy as sa
from pydantic import BaseModel

from domain.connections import check_served
from domain.errors import Category, Refused
from domain.mci import MciSpec, Scale, VmStatus
from domain.mci.messages import MciTerms
from domain.mci.specs import check_length
from domain.model import Claim, Grant, Outcome
from domain.orphans import OrphanSpec, OrphanTerms
from domain.paths import name_of, parent_of, short
from domain.statetable import Row
from domain.wire import cloud_queue, split_placement
from store.hooks import GrantExtras, Hooks, MaybeRow
from store.mci import adopting
from store.mci.connections import forget, places_of, record_use, used_alone
from store.mci.groups import highest_ever, vms_of
from store.mci.unanswered import keep
from store.schema import objects

_RECORD = sa.select(objects.c.status, objects.c.info).where(objects.c.path == sa.bindparam("at_path")).with_for_update()
_THERE = sa.select(objects.c.path).where(objects.c.path == sa.bindparam("at_path"))


def admit(connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row) -> GrantExtras:
    """Adds the connections that the action needs to its grant. Refuses what the worker's clouds cannot do."""
    way = _WAYS.get(claim.request.action)
    extra = way(connection, claim.request.path, spec, found) if way else GrantExtras()
    forgetting = claim.request.action == "delete" and claim.request.force  # calls no cloud
    if claim.serves is not None and not forgetting:
        check_served(places_of(connection, claim.request.path), claim.serves)
    return extra


def admit_vm(
    _connection: sa.Connection, claim: Claim, _spec: BaseModel | None, found: MaybeRow, _row: Row
) -> GrantExtras:
    """Refuses an action on a VM whose place this worker does not serve."""
    if claim.serves is not None and found:
        check_served([found.placement], claim.serves)
    return GrantExtras()


def admit_orphan(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, _found: MaybeRow, _row: Row
) -> GrantExtras:
    """What a record calls its own is no orphan."""
    assert isinstance(spec, OrphanSpec)
    vm, cloud_id = parent_of(claim.request.path) or "", name_of(claim.request.path)
    record = connection.execute(_RECORD, {"at_path": vm}).first()
    if record and record.info.get("cloud_id") == cloud_id and record.status != VmStatus.TERMINATED:
        message = f"{cloud_id} is the VM of {vm}, which is {record.status}: no orphan"
        raise Refused(Category.NOT_ALLOWED, message, f"to end it: starter vm terminate {short(vm)}")
    if claim.serves is not None and spec.place:
        check_served([spec.place], claim.serves)
    if claim.request.action == "adopt":
        own = adopting.check(connection, vm, cloud_id, spec.place)
        return GrantExtras(details=OrphanTerms(place=spec.place, own=own))
    queue = {"queue": cloud_queue(split_placement(spec.place)[0])} if spec.place else {}
    return GrantExtras(details=OrphanTerms(place=spec.place, **queue))


def ended(connection: sa.Connection, grant: Grant, _outcome: Outcome, _at: datetime) -> None:
    """Removes the uses of an MCI that does not exist any more."""
    if grant.action in ("create", "delete") and not connection.execute(_THERE, {"at_path": grant.path}).first():
        forget(connection, grant.path)


def _create(connection: sa.Connection, path: str, spec: BaseModel | None, _found: MaybeRow) -> GrantExtras:
    assert isinstance(spec, MciSpec)
    places = sorted({group.place for group in spec.subGroups})
    return GrantExtras(details=MciTerms(places=places, prepare=record_use(connection, path, places)))


def _scale_out(connection: sa.Connection, path: str, spec: BaseModel | None, found: MaybeRow) -> GrantExtras:
    assert isinstance(spec, Scale)
    assert found
    group = MciSpec.model_validate(found.spec).group(spec.subGroup)
    try:
        check_length(group.name, highest_ever(connection, path, group.name) + spec.count)
    except ValueError as error:
        raise Refused(Category.INVALID, str(error)) from error
    return GrantExtras(details=MciTerms(places=[group.place], prepare=record_use(connection, path, [group.place])))


def _scale_in(connection: sa.Connection, path: str, spec: BaseModel | None, found: MaybeRow) -> GrantExtras:
    assert isinstance(spec, Scale)
    assert found
    MciSpec.model_validate(found.spec).group(spec.subGroup)
    there = len(vms_of(connection, path, spec.subGroup))
    if there < spec.count:
        message = f"subgroup {spec.subGroup} has {there} VMs: {spec.count} cannot be removed"
        raise Refused(Category.NOT_ALLOWED, message, f"see them with: starter mci status {path}")
    return GrantExtras()


def _delete(connection: sa.Connection, path: str, _spec: BaseModel | None, _found: MaybeRow) -> GrantExtras:
    return GrantExtras(details=MciTerms(places=places_of(connection, path), alone=used_alone(connection, path)))


_WAYS: dict[str, Callable[[sa.Connection, str, BaseModel | None, MaybeRow], GrantExtras]] = {
    "create": _create,
    "scale-out": _scale_out,
    "scale-in": _scale_in,
    "delete": _delete,
}

HOOKS: dict[str, Hooks] = {
    "mci": Hooks(admit=admit, ended=ended),
    "vm": Hooks(admit=admit_vm, gone=keep),
    "orphan": Hooks(admit=admit_orphan),
}
