"""Adopts an orphan: gives its VM to the record whose path it carries. Idempotent, in one transaction.

The action holds X on the orphan's path, which is below the VM's, so no action on the VM or its MCI is under way.
"""

from __future__ import annotations

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.mci.orphans import AdoptOrphanOrder
from domain.mci.specs import MciSpec, SubGroup, new_vm_objects
from domain.mci.tables import ADOPTABLE_STATUSES, STATUS_OF_CLOUD_STATE, VM, VmStatus
from domain.paths import name_of, parent_of, short_path
from domain.ports import VmState
from domain.statetable import NONE, Actor, Ruling
from store.grants import columns_at_begin, new_object_row
from store.history import history_line, merge_info
from store.mci.connections import record_place_uses
from store.mci.groups import vm_number_in_name
from store.mci.tables import unanswered_orders
from store.rows import lock_object
from store.schema import ObjectRow
from store.status import OBJECT_BY_PATH, create_objects, update_object_columns
from store.steps import lock_action

# Sweeps remove VMs that are listed as unanswered; this one has a record again.
_DELETE_UNANSWERED = sa.delete(unanswered_orders).where(
    unanswered_orders.c.place == sa.bindparam("at_place"), unanswered_orders.c.path == sa.bindparam("at_path")
)


def check_adoptable(connection: sa.Connection, vm: str, cloud_id: str, place: str) -> str:
    """Returns the cloud id that the VM's record has now, if any. Refuses a record that can take no other VM."""
    hint = f"to end it instead: starter orphans remove {cloud_id}"
    if not place:
        raise Refused(Category.INVALID, "say where it is", "as place, or by: starter orphans adopt ID")
    record = lock_object(connection, vm)
    if record is None:
        _find_group_of_vm(connection, vm, place, hint)
        return ""
    if record.status not in ADOPTABLE_STATUSES:
        message = f"{vm} is {record.status}: only a record that is missing, Failed or Undefined can be given a VM"
        raise Refused(Category.NOT_ALLOWED, message, hint)
    _check_same_place(vm, record.placement, place, hint)
    return str(record.info.get("cloud_id", ""))


def adopt_orphan(connection: sa.Connection, adoption: AdoptOrphanOrder) -> str:
    """Gives the orphan's VM to the record and returns its status. A repeated call returns the same."""
    order = adoption.order
    vm, cloud_id = parent_of(order.path) or "", name_of(order.path)
    action = lock_action(connection, order.epoch)
    if action is None or action.ended_at is not None:
        raise Refused(
            Category.CONFLICT, f"{order.path} is no longer held by this action", f"starter locks {order.path}"
        )
    record, status = lock_object(connection, vm), STATUS_OF_CLOUD_STATE[VmState(adoption.seen.state)]
    if record is not None and record.info.get("cloud_id") == cloud_id:
        return str(record.status)
    check_adoptable(connection, vm, cloud_id, order.place)
    known = {"cloud_id": cloud_id, "address": adoption.seen.address}
    if record is None:
        _create_record(connection, adoption, vm, status, known)
    else:
        _update_record(connection, adoption, record, status, known)
    connection.execute(_DELETE_UNANSWERED, {"at_place": order.place, "at_path": vm})
    return str(status)


def _update_record(
    connection: sa.Connection, adoption: AdoptOrphanOrder, record: ObjectRow, status: VmStatus, known: dict[str, str]
) -> None:
    """Updates the existing record by the row for observed VMs."""
    source, epoch = record.status, record.epoch
    if VM.judge_step(source, status, Actor.CLOUD).ruling is not Ruling.GO:
        raise Refused(
            Category.NOT_ALLOWED,
            f"{record.path} is {source}: no row leads to {status}",
            f"see: starter explain {record.path}",
        )
    info = merge_info(record.info, {**known, "failure": None, "stale": None})
    news = {"status": status, "info": info, "changed_at": adoption.at, "error": ""}
    told = f"adopted {known['cloud_id']}, which is {adoption.seen.state}"
    line = history_line(record.path, adoption.at, Actor.CLOUD, "observe", source, status, epoch, told)
    OBJECT_BY_PATH.change_objects(connection, {"name": record.path}, news, [line])


def _create_record(
    connection: sa.Connection, adoption: AdoptOrphanOrder, vm: str, status: VmStatus, known: dict[str, str]
) -> None:
    """Creates a record by the row of scale-out, with its subgroup's present spec."""
    at, epoch, place = adoption.at, adoption.order.epoch, adoption.order.place
    mci, group = _find_group_of_vm(connection, vm, place, "")
    row, number = VM.find_creation_row("scale-out"), vm_number_in_name(vm, group.name)
    assert row
    assert row.during
    (born,) = new_vm_objects(mci.path, group, number, 1)
    fresh = (
        new_object_row(born)
        | columns_at_begin(row, NONE, epoch, at)
        | {"created_at": at, "info": {"generation": epoch, **known}}
    )
    rest = {"status": status, "target_action": NONE, "target_status": NONE}
    told = f"adopted {known['cloud_id']}, which is {adoption.seen.state}"
    lines = [
        history_line(vm, at, row.actor, row.action, NONE, row.during, epoch, told),
        history_line(vm, at, Actor.CLOUD, "observe", row.during, status, epoch),
    ]
    create_objects(connection, [fresh | rest], lines)
    highest: dict[str, int] = dict(mci.info.get("highest", {}))
    highest[group.name] = max(number, highest.get(group.name, group.subGroupSize))
    update_object_columns(connection, mci.path, info=merge_info(mci.info, {"highest": highest}))
    record_place_uses(connection, mci.path, [place])


def _find_group_of_vm(connection: sa.Connection, vm: str, place: str, hint: str) -> tuple[ObjectRow, SubGroup]:
    """Returns the MCI and the subgroup that the VM's name belongs to, or refuses."""
    path = parent_of(vm) or ""
    mci = lock_object(connection, path)
    if mci is None:
        raise Refused(Category.NOT_FOUND, f"there is no MCI {path}: nothing could adopt its VM", hint)
    if mci.status != VmStatus.RUNNING:
        message = f"{short_path(path)} is {mci.status}: only an MCI that was made can adopt a VM"
        raise Refused(Category.NOT_ALLOWED, message, hint)
    name = name_of(vm).rpartition("-")[0]
    found = {subgroup.name: subgroup for subgroup in MciSpec.model_validate(mci.spec).subGroups}
    if name not in found or not vm_number_in_name(vm, name):
        message = f"{short_path(path)} has no subgroup whose VM could be {name_of(vm)}"
        raise Refused(Category.NOT_ALLOWED, message, hint)
    _check_same_place(vm, found[name].place, place, hint)
    return mci, found[name]


def _check_same_place(vm: str, ours: str, place: str, hint: str) -> None:
    if ours != place:
        raise Refused(Category.NOT_ALLOWED, f"{vm} belongs in {ours}; what was found is in {place}", hint)
