"""Adds VMs to a running action: new ones, or existing ones to be removed. Each call is one transaction.

Idempotent: a repeated call finds what the first one wrote, and returns the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from domain.errors import Category, Refused, format_one_line
from domain.limits import FAILURES_SHOWN
from domain.mci.messages import AddedVms, AddVms
from domain.mci.specs import MciSpec, new_vm_objects
from domain.mci.tables import MCI, VM, MciPhase, VmStatus
from domain.model import Chunk, Grant, NewObject, TargetFailure
from domain.statetable import Actor, Row, Ruling
from store.grants import columns_at_begin, cut_into_ranges, grant_of_action, new_object_row, ranges_to_chunks
from store.history import history_line, merge_info
from store.mci.groups import PlacedVm, highest_vm_number_ever, lock_vms_of_group
from store.rows import lock_object
from store.schema import ObjectRow, actions, objects
from store.status import OBJECT_BY_PATH, ObjectSet, create_objects
from store.steps import lock_action

_UPDATE_ACTION = sa.update(actions).where(actions.c.epoch == sa.bindparam("mine"))
_TAKEN_VMS = ObjectSet(
    objects.c.parent == sa.bindparam("which"),
    objects.c.epoch == sa.bindparam("mine"),
    objects.c.target_action == sa.bindparam("doing"),
)


def add_vms_to_action(connection: sa.Connection, order: AddVms) -> AddedVms:
    """Adds VMs to a running action by its row for VMs. Refuses if the action has ended or lost the MCI."""
    action, mci = lock_action(connection, order.epoch), lock_object(connection, order.path)
    if action is None or action.ended_at is not None or mci is None or mci.epoch != order.epoch:
        raise Refused(
            Category.CONFLICT, f"{order.path} is no longer held by this action", f"starter locks {order.path}"
        )
    return _ADDERS_OF_ACTION[order.action](connection, order, mci, grant_of_action(action))


def _add_new_vms(connection: sa.Connection, order: AddVms, mci: ObjectRow, grant: Grant) -> AddedVms:
    """Creates VM records: all of the spec for `create`, some more of one subgroup for `scale-out`."""
    if grant.targets:
        return AddedVms(chunks=grant.chunks, targets=grant.targets)
    spec = MciSpec.model_validate(mci.spec)
    highest: dict[str, int] = dict(mci.info.get("highest", {}))
    born: list[NewObject] = []
    for group in spec.subGroups if order.action == "create" else [spec.find_group(order.group)]:
        size = group.subGroupSize if order.action == "create" else order.count
        first = _next_vm_number(connection, order, highest, group.name)
        born += new_vm_objects(order.path, group, first, size)
        highest[group.name] = first + size - 1
    row = VM.find_creation_row(order.action)
    assert row
    fresh = columns_at_begin(row, row.source, order.epoch, order.at)
    fresh |= {"created_at": order.at, "info": {"generation": order.epoch}}
    _move_to_creating(connection, order, mci, {"highest": highest})
    create_objects(connection, [new_object_row(each) | fresh for each in born])
    _record_history(connection, order, row.actor)
    return _store_grant(connection, order, grant, _to_chunks(order, [(each.placement, each.path) for each in born]))


def _next_vm_number(connection: sa.Connection, order: AddVms, highest: dict[str, int], group: str) -> int:
    if order.action == "create":
        return 1
    known = highest.get(group)
    return 1 + (highest_vm_number_ever(connection, order.path, group) if known is None else known)


def _move_to_creating(connection: sa.Connection, order: AddVms, mci: ObjectRow, news: dict[str, Any]) -> None:
    """Moves the MCI to Creating, row by row, and merges info."""
    status, lines = mci.status, []
    for to, why in ((MciPhase.PREPARED, ""), (VmStatus.CREATING, order.message)):
        if MCI.judge_step(status, to, Actor.CONTROLLER).ruling is Ruling.GO:
            lines.append(
                history_line(order.path, order.at, Actor.CONTROLLER, order.action, status, to, order.epoch, why)
            )
            status = to
    if status != VmStatus.CREATING:
        raise Refused(
            Category.NOT_ALLOWED,
            f"{order.path} is {status}: no VM is made in that status",
            f"see: starter explain {order.path}",
        )
    values = {"status": status, "changed_at": order.at, "info": merge_info(mci.info, news)}
    OBJECT_BY_PATH.change_objects(connection, {"name": order.path}, values, lines)


def _take_highest_vms(connection: sa.Connection, order: AddVms, mci: ObjectRow, grant: Grant) -> AddedVms:
    """Takes the VMs with the highest numbers of a subgroup, for `scale-in`."""
    if grant.targets:
        return AddedVms(chunks=grant.chunks, targets=grant.targets)
    found = lock_vms_of_group(connection, order.path, order.group)[-order.count :]
    return _store_grant(connection, order, grant, _move_to_transitional(connection, order, found))


def _take_vms_of_failed_creation(connection: sa.Connection, order: AddVms, mci: ObjectRow, grant: Grant) -> AddedVms:
    """After a partly failed creation, takes the failed VMs for `refine` or all VMs for `delete`."""
    members = [
        ObjectRow(*row) for row in connection.execute(_LOCK_TAKEN_VMS, {"which": order.path, "mine": order.epoch})
    ]
    taken = [row for row in members if row.target_action == order.action]  # by an earlier attempt
    failed = [row for row in members if row.status == VmStatus.FAILED or row.previous_status == VmStatus.FAILED]
    if not failed:
        return AddedVms()
    rows = taken or (failed if order.action == "refine" else members)
    todo = [PlacedVm(row.path, row.placement, row.status) for row in rows]
    chunks = (
        _to_chunks(order, [(vm.placement, vm.path) for vm in todo])
        if taken
        else _move_to_transitional(connection, order, todo)
    )
    troubles = [_vm_failure(row, order) for row in failed[:FAILURES_SHOWN]]
    return AddedVms(chunks=chunks, targets=len(todo), lost=len(failed), troubles=troubles)


_LOCK_TAKEN_VMS = (
    sa.select(objects)
    .where(objects.c.parent == sa.bindparam("which"), objects.c.epoch == sa.bindparam("mine"))
    .order_by(objects.c.path)
    .with_for_update()
)
_ADDERS_OF_ACTION: dict[str, Callable[[sa.Connection, AddVms, ObjectRow, Grant], AddedVms]] = {
    "create": _add_new_vms,
    "scale-out": _add_new_vms,
    "scale-in": _take_highest_vms,
    "refine": _take_vms_of_failed_creation,
    "delete": _take_vms_of_failed_creation,
}


def _move_to_transitional(connection: sa.Connection, order: AddVms, vms: Sequence[PlacedVm]) -> list[Chunk]:
    """Moves VMs to their transitional status by the action's row. Returns their chunks."""
    changes = [
        {"name": vm.path, **columns_at_begin(_row_for_vm(order, vm.status), vm.status, order.epoch, order.at)}
        for vm in vms
    ]
    if changes:
        OBJECT_BY_PATH.change_each_object(
            connection, changes, []
        )  # `_tell` writes their history lines in one statement
        _record_history(connection, order, Actor.GROUP)
    return _to_chunks(order, [(vm.placement, vm.path) for vm in vms])


def _row_for_vm(order: AddVms, status: str) -> Row:
    verdict = VM.judge_member(status, order.action)
    if verdict.row is None:
        raise Refused(Category.NOT_ALLOWED, verdict.reason, f"see: starter mci status {order.path}")
    return verdict.row


def _to_chunks(order: AddVms, placed: Sequence[tuple[str, str]]) -> list[Chunk]:
    return ranges_to_chunks(cut_into_ranges(sorted(placed)), order.epoch, order.action)


def _store_grant(connection: sa.Connection, order: AddVms, grant: Grant, chunks: list[Chunk]) -> AddedVms:
    """Stores the chunks in the action's grant, as finish counts the targets there."""
    targets = sum(chunk.count for chunk in chunks)
    kept = grant.model_copy(update={"chunks": chunks, "targets": targets})
    on_record = {"grant": kept.model_dump(mode="json"), "planned": 0}
    connection.execute(_UPDATE_ACTION, {"mine": order.epoch, **on_record})
    return AddedVms(chunks=chunks, targets=targets)


def _record_history(connection: sa.Connection, order: AddVms, actor: str) -> None:
    which = {"which": order.path, "mine": order.epoch, "doing": order.action}
    line = {"at": order.at, "actor": str(actor), "action": order.action}
    _TAKEN_VMS.record_lines_after_move(connection, which, line)


def _vm_failure(row: ObjectRow, order: AddVms) -> TargetFailure:
    failure = row.info.get("failure", {})
    error = format_one_line(failure.get("error") or row.error or "it failed", 200)
    return TargetFailure(path=row.path, status=VmStatus.FAILED, error=error, at=failure.get("at") or order.at)
