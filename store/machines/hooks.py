"""Hooks of the machines family: the locks that an action needs, and its admission checks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from domain.machines import HYPERVISOR_QUEUE, rules, specs
from domain.machines.messages import MachineGrantDetails
from domain.machines.tables import BIN_STATUSES, GONE_STATUSES, MEMORY_STATUSES, S
from domain.model import ActionResult, Grant, Outcome, Request
from domain.orphans import OrphanGrantDetails, OrphanSpec
from domain.paths import ancestor_paths, is_at_or_below, name_of, root_of
from domain.statetable import NONE
from store.advisory import acquire_key_lock
from store.history import merge_info
from store.hooks import AdmissionFacts, AdmitHook, GrantExtras, Hooks, MaybeObjectRow
from store.machines.previews import IS_MACHINE_ON_NODE, preview_node_action, preview_related_objects
from store.queries import below_condition
from store.rows import find_object
from store.schema import IS_MACHINE, ObjectRow, actions, history, json_key_as_text, objects
from store.status import update_object_columns

_ATTACHED_STATUSES = (S.ASSIGNED, S.TOBEDELETED)
_ACTIONS_WITH_DISKS = ("delete", "restore", "destroy")
_DISK_ACTIONS = ("add-disk", "attach-disk", "detach-disk")

_SUM_USED_MEMORY = sa.select(
    sa.func.coalesce(sa.func.sum(sa.cast(json_key_as_text(objects.c.spec, "memory"), sa.Integer)), 0)
).where(*IS_MACHINE_ON_NODE)
_SELECT_RUNNING_MACHINES = sa.select(objects.c.path, objects.c.spec).where(*IS_MACHINE_ON_NODE)


def _lock_object(connection: sa.Connection, path: str, shared: bool = False) -> MaybeObjectRow:
    """Returns an object's row, locked until the transaction ends, because a decision depends on it; None if it is gone.
    With `shared`, others may lock it in the same way."""
    query = sa.select(objects).where(objects.c.path == path).with_for_update(read=shared)
    row = connection.execute(query).one_or_none()
    return ObjectRow(*row) if row and row.status not in GONE_STATUSES else None


def _list_attached_disks(connection: sa.Connection, path: str) -> list[str]:
    """Returns the disks attached to machines at or below a path, including disks in the recycle bin."""
    machine = objects.c.info["machine"].as_string()
    query = sa.select(objects.c.path, machine).where(
        objects.c.parent == root_of(path),
        objects.c.kind == "disk",
        objects.c.status.in_(_ATTACHED_STATUSES),
        machine.startswith(path, autoescape=True),  # a first filter only: `a` is a prefix of `ab`
    )
    return sorted(disk for disk, of in connection.execute(query) if is_at_or_below(of, path))


def _machine_of_disk(object_row: MaybeObjectRow) -> str:
    """Returns the path of the machine that a disk is attached to, or an empty string."""
    return str(object_row.info.get("machine", "")) if object_row else ""


# Locks that an action needs besides its own.


def _locks_of_machine_action(connection: sa.Connection, request: Request, object_row: MaybeObjectRow) -> Sequence[str]:
    """Returns the disks to lock: of an action on a machine, or on a cloudspace with its machines."""
    if request.action in _DISK_ACTIONS:
        return [rules.disk_path(request.path, str((request.spec or {}).get("disk", "")))]
    if request.action in _ACTIONS_WITH_DISKS:
        return _list_attached_disks(connection, request.path)
    return ()


def _machine_disk_was_made_for(connection: sa.Connection, disk: str) -> list[str]:
    """Returns the machine that a disk was created for by add-disk: the hypervisor may have attached it."""
    adding = (
        sa.select(actions.c.path)
        .join(history, history.c.epoch == actions.c.epoch)
        .where(history.c.path == disk, actions.c.action == "add-disk")
        .order_by(history.c.seq.desc())
        .limit(1)
    )
    return list(connection.execute(adding).scalars())


def _locks_of_disk_action(connection: sa.Connection, request: Request, object_row: MaybeObjectRow) -> Sequence[str]:
    """Returns the machine to lock: actions on an attached disk go through its machine's wait queue."""
    if request.action == "discard":
        return _machine_disk_was_made_for(connection, request.path)
    if request.action in ("attach", "assign"):
        return [rules.machine_path(request.path, str((request.spec or {}).get("machine", "")))]
    attached = object_row is not None and object_row.status in _ATTACHED_STATUSES
    return [_machine_of_disk(object_row)] if attached and _machine_of_disk(object_row) else ()


# Whether an action may begin.


def _admit_machine(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    request, spec, object_row = facts.claim.request, facts.spec, facts.object_row
    _check_ancestors(connection, request)
    if isinstance(spec, specs.NewMachineSpec) and not spec.virtual:
        return GrantExtras(spec=_complete_spec(spec), info=_check_new_machine(connection, spec.model_dump()))
    if request.action == "deploy" and object_row:
        return GrantExtras(info=_check_new_machine(connection, object_row.spec))
    if isinstance(spec, specs.MigrateSpec) and object_row:
        _check_migration_target(connection, object_row, spec.node)
        return GrantExtras(details=MachineGrantDetails(node=spec.node or ""))
    if isinstance(spec, specs.DiskNameSpec):
        return _admit_disk_action(connection, request, spec)
    if isinstance(spec, specs.SnapshotNameSpec) and object_row:
        known, attached = object_row.info.get("snapshots", {}), _list_attached_disks(connection, request.path)
        rules.check_snapshot(request.action, request.path, object_row.status, spec.snapshot, known, attached)
        return GrantExtras(details=MachineGrantDetails(snapshot=spec.snapshot))
    named = _locks_of_machine_action(connection, request, object_row)
    return _admit_delete(connection, facts, MachineGrantDetails(named=list(named)))


def _admit_disk_action(connection: sa.Connection, request: Request, spec: specs.DiskNameSpec) -> GrantExtras:
    disk = rules.disk_path(request.path, spec.disk)
    row = _lock_object(connection, disk)
    status = str(row.status) if row else None
    rules.check_disk_for_machine(request.action, disk, status, _machine_of_disk(row), request.path)
    return GrantExtras(details=MachineGrantDetails(named=[disk], order=spec.model_dump()))


def _admit_disk(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    request, spec = facts.claim.request, facts.spec
    _check_ancestors(connection, request)
    machine = _machine_of_disk(facts.object_row)
    if isinstance(spec, specs.MachineNameSpec):
        machine = rules.machine_path(request.path, spec.machine)
    if isinstance(spec, specs.MachineNameSpec) or request.action == "detach" or facts.row.source == S.TOBEDELETED:
        kept = _lock_object(connection, machine)
        going = request.action == "destroy" and kept is not None and kept.status in BIN_STATUSES
        if not going:
            rules.check_machine_for_disk(request.action, machine, str(kept.status) if kept else None)
    terms = MachineGrantDetails(named=[machine] if machine else [], machine=machine)
    return _admit_delete(connection, facts, terms)


def _admit_cloudspace(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    request = facts.claim.request
    _check_ancestors(connection, request)
    _check_empty(connection, facts, ("machine",))
    terms = MachineGrantDetails(named=list(_locks_of_machine_action(connection, request, facts.object_row)))
    if request.action == "restore" and facts.object_row:  # objects deleted with it are restored with it
        terms = terms.model_copy(update={"bin": facts.object_row.info.get("bin")})
    return _admit_delete(connection, facts, terms)


def _admit_account(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    _check_empty(connection, facts, ("cloudspace", "disk", "machine"))
    enabled = facts.object_row if facts.claim.request.action == "enable" else None
    named = list(enabled.info.get("paused", [])) if enabled else []
    return _admit_delete(connection, facts, MachineGrantDetails(named=named))


def _admit_image(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    request = facts.claim.request
    if request.action in ("delete", "destroy"):
        made_from = json_key_as_text(objects.c.spec, "image") == name_of(request.path)
        users = sa.select(objects.c.path).where(
            IS_MACHINE, made_from, objects.c.status.notin_([*GONE_STATUSES, S.VIRTUAL])
        )
        rules.check_image_unused(request.path, request.action, connection.execute(users.limit(100)).scalars())
    return _admit_delete(connection, facts, MachineGrantDetails())


def _admit_node(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    request, spec, object_row = facts.claim.request, facts.spec, facts.object_row
    if request.action == "decommission":
        acquire_key_lock(connection, "nodes")  # each must see the others, as the last enabled node has to stay
        rules.check_another_node_enabled(
            name_of(request.path), _list_enabled_nodes(connection), f"decommission of {request.path}"
        )
    if isinstance(spec, specs.MaintainSpec):
        if spec.mode == "move":
            _check_machines_have_room(connection, name_of(request.path))
        return GrantExtras(details=MachineGrantDetails(mode=spec.mode))
    if request.action == "enable" and object_row:
        return GrantExtras(details=MachineGrantDetails(stopped=object_row.info.get("stopped", [])))
    return GrantExtras(spec=_complete_spec(spec))


def _check_ancestors(connection: sa.Connection, request: Request) -> None:
    query = sa.select(objects.c.path, objects.c.status).where(objects.c.path.in_(ancestor_paths(request.path)))
    there = {path: status for path, status in connection.execute(query) if status not in GONE_STATUSES}
    rules.check_ancestors_in_use(request.path, request.action, there)


def _check_empty(connection: sa.Connection, facts: AdmissionFacts, kinds: Sequence[str]) -> None:
    """Refuses to delete or destroy what has such objects in it, unless all of it is meant."""
    request = facts.claim.request
    if request.action not in ("delete", "destroy"):
        return
    query = sa.select(objects.c.path, objects.c.status).where(
        below_condition(objects.c.path, request.path), objects.c.kind.in_(kinds)
    )
    contents = {path: status for path, status in connection.execute(query)}  # noqa: C416  rows, not pairs
    rules.check_empty_or_cascade(request.path, request.action, bool(getattr(facts.spec, "cascade", False)), contents)


def _check_new_machine(connection: sa.Connection, spec: dict[str, Any]) -> dict[str, Any] | None:
    """Refuses unless the image and the named node can take the machine. Reserves memory on that node."""
    image = f"image:{spec['image']}"
    row = _lock_object(connection, image, shared=True)
    rules.check_image_usable(image, str(row.status) if row else None)
    if node := spec.get("node"):
        _check_node_room(connection, node, int(spec.get("memory", specs.MACHINE_MEMORY)))
    return {"node": node} if node else None


def _check_migration_target(connection: sa.Connection, found: ObjectRow, node: str | None) -> None:
    """Refuses a migration that is impossible now. Without a named node, the hypervisor chooses at its turn."""
    here = str(found.info.get("node", ""))
    if node is None:
        rules.check_another_node_enabled(here, _list_enabled_nodes(connection), f"migration of {found.path}")
        return
    needed = int(found.spec.get("memory", specs.MACHINE_MEMORY)) if found.status in MEMORY_STATUSES else 0
    _check_node_room(connection, node, needed, here)


def _check_node_room(connection: sa.Connection, name: str, needed: int, here: str = "") -> None:
    node = _lock_object(connection, f"node:{name}")  # locked first: serialises decisions about its memory
    room = _read_free_memory(connection, name, node.spec) if node else 0
    rules.check_node_has_room(name, str(node.status) if node else None, room, needed, here)


def _check_machines_have_room(connection: sa.Connection, name: str) -> None:
    """Refuses a maintenance that would have to stop machines. If room goes meanwhile, the maintenance fails instead."""
    running = connection.execute(_SELECT_RUNNING_MACHINES, {"node": name, "statuses": MEMORY_STATUSES})
    machines = {path: int(spec.get("memory", specs.MACHINE_MEMORY)) for path, spec in running}
    if machines:
        others = {other: spec for other, spec in _list_enabled_nodes(connection).items() if other != name}
        rooms = (_read_free_memory(connection, other, spec) for other, spec in others.items())
        rules.check_machines_have_room(name, machines, rooms)


def _read_free_memory(connection: sa.Connection, name: str, spec: dict[str, Any]) -> int:
    """Returns the free memory of a node with this spec."""
    used = int(connection.execute(_SUM_USED_MEMORY, {"node": name, "statuses": MEMORY_STATUSES}).scalar_one())
    return int(spec.get("memory", specs.NODE_MEMORY)) - used


def _list_enabled_nodes(connection: sa.Connection) -> dict[str, dict[str, Any]]:
    """Returns the names of the enabled nodes, each with its spec."""
    query = sa.select(objects.c.path, objects.c.spec).where(objects.c.kind == "node", objects.c.status == S.ENABLED)
    return {name_of(path): spec for path, spec in connection.execute(query)}


def _admit_delete(connection: sa.Connection, facts: AdmissionFacts, terms: MachineGrantDetails) -> GrantExtras:
    """Admits delete and destroy of every kind. Delete sets how long the entry stays in the recycle bin; the bin's clock
    may destroy only the entry that it read."""
    claim, spec, object_row, row = facts
    path, info = claim.request.path, None
    if isinstance(spec, specs.DeleteSpec) and row.then in BIN_STATUSES:
        account = find_object(connection, root_of(path))  # its lock is held
        kept = account.spec if account else None
        stays = rules.retention_seconds(spec.retention_days, kept, specs.DEFAULT_RETENTION_DAYS)
        terms = terms.model_copy(update={"until": rules.bin_retention_end(claim.at, stays)})
        info = {"until": terms.until}  # written at begin, so that the clock finds it when it is woken
    if isinstance(spec, specs.DestroySpec) and spec.bin is not None:
        rules.check_still_in_bin(
            path,
            object_row.status if object_row else NONE,
            object_row.info.get("bin") if object_row else None,
            spec.bin,
        )
    return GrantExtras(details=terms, info=info, spec=_complete_spec(spec))


def _finish_delete(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Removes the retention time of an object whose delete did not succeed."""
    if grant.action != "delete" or outcome.result is ActionResult.SUCCEEDED:
        return
    row = _lock_object(connection, grant.path)
    if row and row.status not in BIN_STATUSES and "until" in row.info:
        kept = merge_info(row.info, {"until": None})
        update_object_columns(connection, grant.path, info=kept)


def _complete_spec(spec: BaseModel | None) -> dict[str, Any] | None:
    """Returns a new object's whole spec with its defaults, so that readers need not know them."""
    return spec.model_dump(exclude_none=True) if isinstance(spec, specs.NewObjectSpec) else None


def _admit_unless_orphan(admit: AdmitHook) -> AdmitHook:
    """Wraps an admit hook: an orphan's removal is admitted at once, as it has no parents or contents to check."""

    def admit_any(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
        if isinstance(facts.spec, OrphanSpec):
            return GrantExtras(details=OrphanGrantDetails(queue=HYPERVISOR_QUEUE))
        return admit(connection, facts)

    return admit_any


HOOKS: dict[str, Hooks] = {
    "machine": Hooks(
        extra_locks=_locks_of_machine_action,
        admit=_admit_unless_orphan(_admit_machine),
        on_finish=_finish_delete,
        rehearse=preview_related_objects,
    ),
    "cloudspace": Hooks(
        extra_locks=_locks_of_machine_action,
        admit=_admit_unless_orphan(_admit_cloudspace),
        on_finish=_finish_delete,
        rehearse=preview_related_objects,
    ),
    "account": Hooks(admit=_admit_account, on_finish=_finish_delete, rehearse=preview_related_objects),
    "disk": Hooks(
        extra_locks=_locks_of_disk_action,
        admit=_admit_unless_orphan(_admit_disk),
        on_finish=_finish_delete,
        rehearse=preview_related_objects,
    ),
    "image": Hooks(admit=_admit_unless_orphan(_admit_image), on_finish=_finish_delete),
    "node": Hooks(admit=_admit_unless_orphan(_admit_node), rehearse=preview_node_action),
}
