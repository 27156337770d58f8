"""Adds VMs to a running action: new ones, or existing ones to be removed. Each call is one transaction.

Idempotent: a repeated call finds what the first one wrote, and returns the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from domain.errors import Category, Refused, one_line
from domain.limits import FAILURES_SHOWN
from domain.mci import MCI, VM, MciPhase, MciSpec, VmStatus
from domain.mci.messages import AddedVms, AddVms
from domain.mci.specs import new_vms
from domain.model import Chunk, Grant, NewObject, TargetFailure
from domain.statetable import Actor, Row, Ruling
from store.grants import begin_values, chunks_of, cut_into_ranges, new_row, stored_grant
from store.history import history_line, merge_info
from store.mci.groups import PlacedVm, highest_ever, vms_of
from store.rows import lock_object, read_all, read_one
from store.schema import ActionRow, ObjectRow, actions, objects
from store.status import ONE, ObjectSet, create

_ACTION = sa.select(actions).where(actions.c.epoch == sa.bindparam("mine")).with_for_update()
_GRANT = sa.update(actions).where(actions.c.epoch == sa.bindparam("mine"))
_TAKEN = ObjectSet(
    objects.c.parent == sa.bindparam("which"),
    objects.c.epoch == sa.bindparam("mine"),
    objects.c.target_action == sa.bindparam("doing"),
)


def add_vms_to_action(connection: sa.Connection, order: AddVms) -> AddedVms:
    """Adds VMs to a running action by its row for VMs. Refuses if the action has ended or lost the MCI."""
    action = read_one(ActionRow, connection.execute(_ACTION, {"mine": order.epoch}))
    mci = lock_object(connection, order.path)
    if action is None or action.ended_at is not None or mci is None or mci.epoch != order.epoch:
        raise Refused(Category.CONFLICT, f"{order.path} is no longer held by this action")
    return _WAYS[order.action](connection, order, mci, stored_grant(action))


def _new_vms(connection: sa.Connection, order: AddVms, mci: ObjectRow, grant: Grant) -> AddedVms:
    """Creates VM records: all of the spec for `create`, some more of one subgroup for `scale-out`."""
    if grant.targets:
        return AddedVms(chunks=grant.chunks, targets=grant.targets)
    spec = MciSpec.model_validate(mci.spec)
    highest: dict[str, int] = dict(mci.info.get("highest", {}))
    born: list[NewObject] = []
    for group in spec.subGroups if order.action == "create" else [spec.group(order.group)]:
        size = group.subGroupSize if order.action == "create" else order.count
        first = _next(connection, order, highest, group.name)
        born += new_vms(order.path, group, first, size)
        highest[group.name] = first + size - 1
    row = VM.creation_row(order.action)
    assert row
    fresh = begin_values(row, row.source, order.epoch, order.at)
    fresh |= {"created_at": order.at, "info": {"generation": order.epoch}}
    _provision(connection, order, mci, {"highest": highest})
    create(connection, [new_row(each) | fresh for each in born])
    _tell(connection, order, row.actor)
    return _keep(connection, order, grant, _chunks(order, [(each.placement, each.path) for each in born]))


def _next(connection: sa.Connection, order: AddVms, highest: dict[str, int], group: str) -> int:
    if order.action == "create":
        return 1
    known = highest.get(group)
    return 1 + (highest_ever(connection, order.path, group) if known is None else known)


def _provision(connection: sa.Connection, order: AddVms, mci: ObjectRow, news: dict[str, Any]) -> None:
    """Moves the MCI to Creating, row by row, and merges info."""
    status, lines = mci.status, []
    for to, why in ((MciPhase.PREPARED, ""), (VmStatus.CREATING, order.message)):
        if MCI.judge_step(status, to, Actor.CONTROLLER).ruling is Ruling.GO:
            lines.append(
                history_line(order.path, order.at, Actor.CONTROLLER, order.action, status, to, order.epoch, why)
            )
            status = to
    if status != VmStatus.CREATING:
        raise Refused(Category.NOT_ALLOWED, f"{order.path} is {status}: no VM is made in that status")
    values = {"status": status, "changed_at": order.at, "info": merge_info(mci.info, news)}
    ONE.change(connection, {"name": order.path}, values, lines)


def _scaled_in(connection: sa.Connection, order: AddVms, mci: ObjectRow, grant: Grant) -> AddedVms:
    """Takes the VMs with the highest numbers of a subgroup, for `scale-in`."""
    if grant.targets:
        return AddedVms(chunks=grant.chunks, targets=grant.targets)
    found = vms_of(connection, order.path, order.group)[-order.count :]
    return _keep(connection, order, grant, _take_along(connection, order, found))


def _failed_or_all(connection: sa.Connection, order: AddVms, mci: ObjectRow, grant: Grant) -> AddedVms:
    """After a partly failed creation, takes the failed VMs for `refine` or all VMs for `delete`."""
    members = read_all(ObjectRow, connection.execute(_MEMBERS, {"which": order.path, "mine": order.epoch}))
    taken = [row for row in members if row.target_action == order.action]  # by an earlier attempt
    failed = [row for row in members if row.status == VmStatus.FAILED or row.previous_status == VmStatus.FAILED]
    if not failed:
        return AddedVms()
    rows = taken or (failed if order.action == "refine" else members)
    todo = [PlacedVm(row.path, row.placement, row.status) for row in rows]
    chunks = _chunks(order, [(vm.placement, vm.path) for vm in todo]) if taken else _take_along(connection, order, todo)
    troubles = [_trouble(row, order) for row in failed[:FAILURES_SHOWN]]
    return AddedVms(chunks=chunks, targets=len(todo), lost=len(failed), troubles=troubles)


_MEMBERS = (
    sa.select(objects)
    .where(objects.c.parent == sa.bindparam("which"), objects.c.epoch == sa.bindparam("mine"))
    .order_by(objects.c.path)
    .with_for_update()
)
_WAYS: dict[str, Callable[[sa.Connection, AddVms, ObjectRow, Grant], AddedVms]] = {
    "create": _new_vms,
    "scale-out": _new_vms,
    "scale-in": _scaled_in,
    "refine": _failed_or_all,
    "delete": _failed_or_all,
}


def _take_along(connection: sa.Connection, order: AddVms, vms: Sequence[PlacedVm]) -> list[Chunk]:
    """Moves VMs to their transitional status by the action's row. Returns their chunks."""
    changes = [
        {"name": vm.path, **begin_values(_row(order, vm.status), vm.status, order.epoch, order.at)} for vm in vms
    ]
    if changes:
        ONE.change_each(connection, changes, [])  # `_tell` writes their history lines in one statement
        _tell(connection, order, Actor.GROUP)
    return _chunks(order, [(vm.placement, vm.path) for vm in vms])


def _row(order: AddVms, status: str) -> Row:
    verdict = VM.judge_member(status, order.action)
    if verdict.row is None:
        raise Refused(Category.NOT_ALLOWED, verdict.reason)
    return verdict.row


def _chunks(order: AddVms, placed: Sequence[tuple[str, str]]) -> list[Chunk]:
    return chunks_of(cut_into_ranges(sorted(placed)), order.epoch, order.action)


def _keep(connection: sa.Connection, order: AddVms, grant: Grant, chunks: list[Chunk]) -> AddedVms:
    """Stores the chunks in the action's grant, as finish counts the targets there."""
    targets = sum(chunk.count for chunk in chunks)
    kept = grant.model_copy(update={"chunks": chunks, "targets": targets})
    connection.execute(_GRANT, {"mine": order.epoch, "grant": kept.model_dump(mode="json")})
    return AddedVms(chunks=chunks, targets=targets)


def _tell(connection: sa.Connection, order: AddVms, actor: str) -> None:
    which = {"which": order.path, "mine": order.epoch, "doing": order.action}
    line = {"at": order.at, "actor": str(actor), "action": order.action}
    _TAKEN.record_arrivals(connection, which, line)


def _trouble(row: ObjectRow, order: AddVms) -> TargetFailure:
    failure = row.info.get("failure", {})
    error = one_line(failure.get("error") or row.error or "it failed", 200)
    return TargetFailure(path=row.path, status=VmStatus.FAILED, error=error, at=failure.get("at") or order.at)
