"""Adopts an orphan: gives its VM to the record whose path it carries. Idempotent, in one transaction.

The action holds X on the orphan's path, which is below the VM's, so no action on the VM or its MCI is under way.
"""

from __future__ import annotations

import sqlalchemy as sa

from domain.errors import Category, Refused
from domain.mci import OBSERVED, VM, MciSpec, SubGroup, VmStatus
from domain.mci.specs import new_vms
from domain.mci.strays import Adoption
from domain.mci.tables import ADOPTING
from domain.paths import name_of, parent_of, short
from domain.ports import VmState
from domain.statetable import NONE, Actor, Ruling
from store.grants import begin_values, new_row
from store.history import history_line, merge_info
from store.mci.connections import record_use
from store.mci.groups import index
from store.mci.tables import unanswered
from store.rows import lock_object
from store.schema import ObjectRow, actions
from store.status import ONE, create, set_details

_ACTION = sa.select(actions.c.ended_at).where(actions.c.epoch == sa.bindparam("mine")).with_for_update()
# Sweeps remove VMs that are listed as unanswered; this one has a record again.
_ANSWERED = sa.delete(unanswered).where(
    unanswered.c.place == sa.bindparam("at_place"), unanswered.c.path == sa.bindparam("at_path")
)


def check(connection: sa.Connection, vm: str, cloud_id: str, place: str) -> str:
    """Returns the cloud id that the VM's record has now, if any. Refuses a record that can take no other VM."""
    hint = f"to end it instead: starter orphans remove {cloud_id}"
    if not place:
        raise Refused(Category.INVALID, "say where it is", "as place, or by: starter orphans adopt")
    record = lock_object(connection, vm)
    if record is None:
        _group(connection, vm, place, hint)
        return ""
    if record.status not in ADOPTING:
        message = f"{vm} is {record.status}: only a record that is missing, Failed or Undefined can be given a VM"
        raise Refused(Category.NOT_ALLOWED, message, hint)
    _check_place(vm, record.placement, place, hint)
    return str(record.info.get("cloud_id", ""))


def adopt(connection: sa.Connection, adoption: Adoption) -> str:
    """Gives the orphan's VM to the record and returns its status. A repeated call returns the same."""
    order = adoption.order
    vm, cloud_id = parent_of(order.path) or "", name_of(order.path)
    action = connection.execute(_ACTION, {"mine": order.epoch}).first()
    if action is None or action.ended_at is not None:
        raise Refused(Category.CONFLICT, f"{order.path} is no longer held by this action")
    record, status = lock_object(connection, vm), OBSERVED[VmState(adoption.seen.state)]
    if record is not None and record.info.get("cloud_id") == cloud_id:
        return str(record.status)
    check(connection, vm, cloud_id, order.place)
    known = {"cloud_id": cloud_id, "address": adoption.seen.address}
    if record is None:
        _create_record(connection, adoption, vm, status, known)
    else:
        _update_record(connection, adoption, record, status, known)
    connection.execute(_ANSWERED, {"at_place": order.place, "at_path": vm})
    return str(status)


def _update_record(
    connection: sa.Connection, adoption: Adoption, record: ObjectRow, status: VmStatus, known: dict[str, str]
) -> None:
    """Updates the existing record by the row for observed VMs."""
    source, epoch = record.status, record.epoch
    if VM.judge_step(source, status, Actor.CLOUD).ruling is not Ruling.GO:
        raise Refused(Category.NOT_ALLOWED, f"{record.path} is {source}: no row leads to {status}")
    info = merge_info(record.info, {**known, "failure": None, "stale": None})
    news = {"status": status, "info": info, "changed_at": adoption.at, "error": ""}
    told = f"adopted {known['cloud_id']}, which is {adoption.seen.state}"
    line = history_line(record.path, adoption.at, Actor.CLOUD, "observe", source, status, epoch, told)
    ONE.change(connection, {"name": record.path}, news, [line])


def _create_record(
    connection: sa.Connection, adoption: Adoption, vm: str, status: VmStatus, known: dict[str, str]
) -> None:
    """Creates a record by the row of scale-out, with its subgroup's present spec."""
    at, epoch, place = adoption.at, adoption.order.epoch, adoption.order.place
    mci, group = _group(connection, vm, place, "")
    row, number = VM.creation_row("scale-out"), index(vm, group.name)
    assert row
    assert row.during
    (born,) = new_vms(mci.path, group, number, 1)
    fresh = (
        new_row(born) | begin_values(row, NONE, epoch, at) | {"created_at": at, "info": {"generation": epoch, **known}}
    )
    rest = {"status": status, "target_action": NONE, "target_status": NONE}
    told = f"adopted {known['cloud_id']}, which is {adoption.seen.state}"
    lines = [
        history_line(vm, at, row.actor, row.action, NONE, row.during, epoch, told),
        history_line(vm, at, Actor.CLOUD, "observe", row.during, status, epoch),
    ]
    create(connection, [fresh | rest], lines)
    highest: dict[str, int] = dict(mci.info.get("highest", {}))
    highest[group.name] = max(number, highest.get(group.name, group.subGroupSize))
    set_details(connection, mci.path, info=merge_info(mci.info, {"highest": highest}))
    record_use(connection, mci.path, [place])


def _group(connection: sa.Connection, vm: str, place: str, hint: str) -> tuple[ObjectRow, SubGroup]:
    """Returns the MCI and the subgroup that the VM's name belongs to, or refuses."""
    path = parent_of(vm) or ""
    mci = lock_object(connection, path)
    if mci is None:
        raise Refused(Category.NOT_FOUND, f"there is no MCI {path}: nothing could adopt its VM", hint)
    if mci.status != VmStatus.RUNNING:
        message = f"{short(path)} is {mci.status}: only an MCI that was made can adopt a VM"
        raise Refused(Category.NOT_ALLOWED, message, hint)
    name = name_of(vm).rpartition("-")[0]
    found = {each.name: each for each in MciSpec.model_validate(mci.spec).subGroups}
    if name not in found or not index(vm, name):
        message = f"{short(path)} has no subgroup whose VM could be {name_of(vm)}"
        raise Refused(Category.NOT_ALLOWED, message, hint)
    _check_place(vm, found[name].place, place, hint)
    return mci, found[name]


def _check_place(vm: str, ours: str, place: str, hint: str) -> None:
    if ours != place:
        raise Refused(Category.NOT_ALLOWED, f"{vm} belongs in {ours}; what was found is in {place}", hint)
