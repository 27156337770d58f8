"""Hooks of the MCI family: connections that an action uses, limits of scaling, orphans."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from domain.connections import check_places_served
from domain.dryrun import PlannedChange
from domain.errors import Category, Refused, format_count
from domain.mci.messages import AddVms, MciGrantDetails
from domain.mci.specs import MciSpec, ScaleSpec, check_vm_name_length
from domain.mci.tables import VmStatus
from domain.model import BeginRequest, Grant, Outcome
from domain.orphans import OrphanGrantDetails, OrphanSpec
from domain.paths import name_of, parent_of, short_path
from domain.simulated import check_no_place_simulated
from domain.wire import cloud_queue, split_placement
from store.hooks import AdmissionFacts, AdmitHook, GrantExtras, Hooks
from store.mci import adoption
from store.mci.connections import forget_place_uses, list_mci_places, list_places_used_alone, record_place_uses
from store.mci.enrolment import add_vms_to_action
from store.mci.groups import highest_vm_number_ever, lock_vms_of_group
from store.mci.unanswered import keep_unanswered_orders
from store.rows import find_object
from store.schema import objects

_LOCK_RECORD = (
    sa.select(objects.c.status, objects.c.info).where(objects.c.path == sa.bindparam("at_path")).with_for_update()
)


def admit_mci(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Adds the connections that the action needs to its grant. Refuses what the worker's clouds cannot do."""
    claim, spec = facts.claim, facts.spec
    forgetting = claim.request.action == "delete" and claim.request.force  # calls no cloud
    if not forgetting:  # checked before anything is written
        new = [group.place for group in spec.subGroups] if isinstance(spec, MciSpec) else []
        places = {*new, *list_mci_places(connection, claim.request.path)}
        if claim.no_simulation:
            check_no_place_simulated(places)
        if claim.serves is not None:
            check_places_served(places, claim.serves)
    way = _ADMIT_OF_ACTION.get(claim.request.action)
    return way(connection, facts) if way else GrantExtras()


def admit_vm(_connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Refuses an action on a VM whose place this worker does not serve."""
    if facts.claim.serves is not None and facts.object_row:
        check_places_served([facts.object_row.placement], facts.claim.serves)
    return GrantExtras()


def admit_orphan(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Admits the removal of a VM without a record; refuses if a record says that the VM is its own."""
    claim, spec = facts.claim, facts.spec
    assert isinstance(spec, OrphanSpec)
    vm, cloud_id = parent_of(claim.request.path) or "", name_of(claim.request.path)
    record = connection.execute(_LOCK_RECORD, {"at_path": vm}).first()
    if record and record.info.get("cloud_id") == cloud_id and record.status != VmStatus.TERMINATED:
        message = f"{cloud_id} is the VM of {vm}, which is {record.status}: no orphan"
        raise Refused(Category.NOT_ALLOWED, message, f"to end it: starter vm terminate {short_path(vm)}")
    if claim.serves is not None and spec.place:
        check_places_served([spec.place], claim.serves)
    if claim.request.action == "adopt":
        own = adoption.check_adoptable(connection, vm, cloud_id, spec.place)
        return GrantExtras(details=OrphanGrantDetails(place=spec.place, own=own), new_places=[spec.place])
    queue = {"queue": cloud_queue(split_placement(spec.place)[0])} if spec.place else {}
    return GrantExtras(details=OrphanGrantDetails(place=spec.place, **queue))


def finish_mci_action(connection: sa.Connection, grant: Grant, _outcome: Outcome, _at: datetime) -> None:
    """Removes the uses of an MCI that does not exist any more."""
    if grant.action in ("create", "delete") and find_object(connection, grant.path) is None:
        forget_place_uses(connection, grant.path)


def _admit_create(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    path, spec = facts.claim.request.path, facts.spec
    assert isinstance(spec, MciSpec)
    places = sorted({group.place for group in spec.subGroups})
    terms = MciGrantDetails(places=places, prepare=record_place_uses(connection, path, places))
    planned = sum(group.subGroupSize for group in spec.subGroups)
    return GrantExtras(details=terms, new_places=places, planned_vms=planned)


def _admit_scale_out(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    path, spec, object_row = facts.claim.request.path, facts.spec, facts.object_row
    assert isinstance(spec, ScaleSpec)
    assert object_row
    group = MciSpec.model_validate(object_row.spec).find_group(spec.subGroup)
    try:
        check_vm_name_length(group.name, highest_vm_number_ever(connection, path, group.name) + spec.count)
    except ValueError as error:
        raise Refused(Category.INVALID, str(error), "add fewer VMs, or make a subgroup with a shorter name") from error
    terms = MciGrantDetails(places=[group.place], prepare=record_place_uses(connection, path, [group.place]))
    return GrantExtras(details=terms, new_places=[group.place], planned_vms=spec.count)


def _admit_scale_in(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    path, spec, object_row = facts.claim.request.path, facts.spec, facts.object_row
    assert isinstance(spec, ScaleSpec)
    assert object_row
    MciSpec.model_validate(object_row.spec).find_group(spec.subGroup)
    there = len(lock_vms_of_group(connection, path, spec.subGroup))
    if there < spec.count:
        message = f"subgroup {spec.subGroup} has {format_count(there, 'VM')}: {spec.count} cannot be removed"
        raise Refused(Category.NOT_ALLOWED, message, f"see them with: starter mci status {path}")
    return GrantExtras()


def _admit_delete(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    path = facts.claim.request.path
    places, alone = list_mci_places(connection, path), list_places_used_alone(connection, path)
    return GrantExtras(details=MciGrantDetails(places=places, alone=alone))


_ADMIT_OF_ACTION: dict[str, AdmitHook] = {
    "create": _admit_create,
    "scale-out": _admit_scale_out,
    "scale-in": _admit_scale_in,
    "delete": _admit_delete,
}


def preview_mci_action(connection: sa.Connection, claim: BeginRequest, grant: Grant) -> Sequence[PlannedChange]:
    """Adds the VMs that the action would create or remove after it has begun, for a dry run."""
    if grant.action not in ("create", "scale-out", "scale-in"):
        return ()
    order = AddVms(path=grant.path, epoch=grant.epoch, action=grant.action, at=claim.at)
    if grant.action != "create":
        scale = ScaleSpec.model_validate(claim.request.spec or {})
        order = order.model_copy(update={"group": scale.subGroup, "count": scale.count})
    add_vms_to_action(connection, order)
    return ()


HOOKS: dict[str, Hooks] = {
    "mci": Hooks(admit=admit_mci, on_finish=finish_mci_action, rehearse=preview_mci_action),
    "vm": Hooks(admit=admit_vm, before_removal=keep_unanswered_orders),
    "orphan": Hooks(admit=admit_orphan),
}
