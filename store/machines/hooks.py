"""Hooks of the machines family: the locks that an action needs, and its admission checks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from domain.machines import QUEUE, rules, specs
from domain.machines.messages import MachineTerms
from domain.machines.tables import GONE, IN_BIN, S
from domain.model import Claim, Grant, Outcome, Request, Result
from domain.orphans import OrphanSpec, OrphanTerms
from domain.paths import ancestors, name_of
from domain.statetable import NONE, Row
from store.history import merge_info
from store.hooks import AdmitHook, GrantExtras, Hooks, MaybeRow
from store.queries import inside
from store.rows import read_one
from store.schema import MACHINES, ObjectRow, actions, history, json_text, objects
from store.status import set_details

_ATTACHED = (S.ASSIGNED, S.TOBEDELETED)
_WITH_DISKS = ("delete", "restore", "destroy")
_ON_DISK = ("add-disk", "attach-disk", "detach-disk")
_USING_MEMORY = (S.RUNNING, S.PAUSING, S.PAUSED, S.RESUMING, S.STARTING, S.DEPLOYING, S.REBOOTING, S.RESETTING)

_USED = sa.select(sa.func.coalesce(sa.func.sum(sa.cast(json_text(objects.c.spec, "memory"), sa.Integer)), 0)).where(
    MACHINES,
    json_text(objects.c.info, "node") == sa.bindparam("node"),
    objects.c.status.in_(sa.bindparam("statuses", expanding=True)),
)
_SPEC = sa.select(objects.c.spec).where(objects.c.path == sa.bindparam("which"))


def _statuses(connection: sa.Connection, paths: Sequence[str]) -> dict[str, str]:
    query = sa.select(objects.c.path, objects.c.status).where(objects.c.path.in_(paths))
    return {path: status for path, status in connection.execute(query) if status not in GONE}


def _object(connection: sa.Connection, path: str, shared: bool = False) -> MaybeRow:
    """Returns an object's row, locked until the transaction ends, because a decision depends on it; None if it is gone.
    With `shared`, others may lock it in the same way."""
    query = sa.select(objects).where(objects.c.path == path).with_for_update(read=shared)
    found = read_one(ObjectRow, connection.execute(query))
    return None if found and found.status in GONE else found


def _disks_of(connection: sa.Connection, path: str) -> list[str]:
    """Returns the disks attached to machines at or below a path, including disks in the recycle bin."""
    machine = objects.c.info["machine"].as_string()
    query = sa.select(objects.c.path, machine).where(
        objects.c.parent == rules.account_of(path),
        objects.c.kind == "disk",
        objects.c.status.in_(_ATTACHED),
        machine.startswith(path, autoescape=True),  # a first filter only: `a` is a prefix of `ab`
    )
    return sorted(disk for disk, of in connection.execute(query) if of == path or of.startswith(f"{path}:"))


def _machine_of(found: MaybeRow) -> str:
    """Returns the path of the machine that a disk is attached to, or an empty string."""
    return str(found.info.get("machine", "")) if found else ""


# Locks that an action needs besides its own.


def _machine_locks(connection: sa.Connection, request: Request, found: MaybeRow) -> Sequence[str]:
    if request.action in _ON_DISK:
        return [rules.disk_path(request.path, str((request.spec or {}).get("disk", "")))]
    if request.action in _WITH_DISKS:
        return _disks_of(connection, request.path)
    return ()


def _added_to(connection: sa.Connection, disk: str) -> list[str]:
    """Returns the machine that a disk was created for by add-disk: the hypervisor may have attached it."""
    adding = (
        sa.select(actions.c.path)
        .join(history, history.c.epoch == actions.c.epoch)
        .where(history.c.path == disk, actions.c.action == "add-disk")
        .order_by(history.c.seq.desc())
        .limit(1)
    )
    return list(connection.execute(adding).scalars())


def _disk_locks(connection: sa.Connection, request: Request, found: MaybeRow) -> Sequence[str]:
    """Returns the machine to lock: actions on an attached disk go through its machine's wait queue."""
    if request.action == "discard":
        return _added_to(connection, request.path)
    if request.action in ("attach", "assign"):
        return [rules.machine_path(request.path, str((request.spec or {}).get("machine", "")))]
    attached = found is not None and found.status in _ATTACHED
    return [_machine_of(found)] if attached and _machine_of(found) else ()


def _cloudspace_locks(connection: sa.Connection, request: Request, found: MaybeRow) -> Sequence[str]:
    return _disks_of(connection, request.path) if request.action in _WITH_DISKS else ()


# Whether an action may begin.


def _admit_machine(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row
) -> GrantExtras:
    request = claim.request
    _check_parents(connection, request)
    if isinstance(spec, specs.NewMachine) and not spec.virtual:
        return GrantExtras(spec=_stored_spec(spec), info=_check_new_machine(connection, spec.model_dump()))
    if request.action == "deploy" and found:
        return GrantExtras(info=_check_new_machine(connection, found.spec))
    if isinstance(spec, specs.Migrate) and found:
        _check_target(connection, found, spec.node)
        return GrantExtras(details=MachineTerms(node=spec.node or ""))
    if isinstance(spec, specs.DiskChoice):
        return _admit_disk_action(connection, request, spec)
    named = _machine_locks(connection, request, found)
    return _admit_delete(connection, claim, spec, found, row, MachineTerms(named=list(named)))


def _admit_disk_action(connection: sa.Connection, request: Request, spec: specs.DiskChoice) -> GrantExtras:
    disk = rules.disk_path(request.path, spec.disk)
    kept = _object(connection, disk)
    status = str(kept.status) if kept else None
    rules.check_disk(request.action, disk, status, _machine_of(kept), request.path)
    return GrantExtras(details=MachineTerms(named=[disk], order=spec.model_dump()))


def _admit_disk(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row
) -> GrantExtras:
    request = claim.request
    _check_parents(connection, request)
    machine = _machine_of(found)
    if isinstance(spec, specs.MachineChoice):
        machine = rules.machine_path(request.path, spec.machine)
    if isinstance(spec, specs.MachineChoice) or request.action == "detach" or row.source == S.TOBEDELETED:
        kept = _object(connection, machine)
        going = request.action == "destroy" and kept is not None and kept.status in IN_BIN
        if not going:
            rules.check_machine(request.action, machine, str(kept.status) if kept else None)
    terms = MachineTerms(named=[machine] if machine else [], machine=machine)
    return _admit_delete(connection, claim, spec, found, row, terms)


def _admit_cloudspace(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row
) -> GrantExtras:
    request = claim.request
    _check_parents(connection, request)
    if request.action in ("delete", "destroy"):
        _check_contents(connection, request, spec, ("machine",))
    terms = MachineTerms(named=list(_cloudspace_locks(connection, request, found)))
    if request.action == "restore" and found:  # objects deleted with it are restored with it
        terms = terms.model_copy(update={"bin": found.info.get("bin")})
    return _admit_delete(connection, claim, spec, found, row, terms)


def _admit_account(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row
) -> GrantExtras:
    request = claim.request
    if request.action in ("delete", "destroy"):
        _check_contents(connection, request, spec, ("cloudspace", "disk", "machine"))
    named = list((found.info if found else {}).get("paused", [])) if request.action == "enable" else []
    return _admit_delete(connection, claim, spec, found, row, MachineTerms(named=named))


def _admit_image(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row
) -> GrantExtras:
    request = claim.request
    if request.action in ("delete", "destroy"):
        made_from = json_text(objects.c.spec, "image") == name_of(request.path)
        users = sa.select(objects.c.path).where(MACHINES, made_from, objects.c.status.notin_([*GONE, S.VIRTUAL]))
        rules.check_unused(request.path, request.action, connection.execute(users.limit(100)).scalars())
    return _admit_delete(connection, claim, spec, found, row, MachineTerms())


def _admit_node(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row
) -> GrantExtras:
    request = claim.request
    if request.action == "decommission":
        _one_at_a_time(connection)
        rules.check_another_node(name_of(request.path), _enabled_nodes(connection), f"decommission of {request.path}")
    if isinstance(spec, specs.Maintain):
        return GrantExtras(details=MachineTerms(mode=spec.mode))
    if request.action == "enable" and found:
        return GrantExtras(details=MachineTerms(stopped=found.info.get("stopped", [])))
    return GrantExtras(spec=_stored_spec(spec))


def _check_parents(connection: sa.Connection, request: Request) -> None:
    rules.check_parents(request.path, request.action, _statuses(connection, ancestors(request.path)))


def _check_contents(connection: sa.Connection, request: Request, spec: BaseModel | None, kinds: Sequence[str]) -> None:
    query = sa.select(objects.c.path, objects.c.status).where(
        inside(objects.c.path, request.path), objects.c.kind.in_(kinds)
    )
    contents = {path: status for path, status in connection.execute(query)}  # noqa: C416  rows, not pairs
    rules.check_contents(request.path, request.action, bool(getattr(spec, "cascade", False)), contents)


def _check_new_machine(connection: sa.Connection, spec: dict[str, Any]) -> dict[str, Any] | None:
    """Refuses unless the image and the named node can take the machine. Reserves memory on that node."""
    image = f"image:{spec['image']}"
    found = _object(connection, image, shared=True)
    rules.check_image(image, str(found.status) if found else None)
    if node := spec.get("node"):
        _check_room(connection, node, int(spec.get("memory", specs.MACHINE_MEMORY)))
    return {"node": node} if node else None


def _check_target(connection: sa.Connection, found: ObjectRow, node: str | None) -> None:
    """Refuses a migration that is impossible now. Without a named node, the hypervisor chooses at its turn."""
    here = str(found.info.get("node", ""))
    if node is None:
        rules.check_another_node(here, _enabled_nodes(connection), f"migration of {found.path}")
        return
    needed = int(found.spec.get("memory", specs.MACHINE_MEMORY)) if found.status in _USING_MEMORY else 0
    _check_room(connection, node, needed, here)


def _check_room(connection: sa.Connection, name: str, needed: int, here: str = "") -> None:
    node = _object(connection, f"node:{name}")  # locked first: serialises decisions about its memory
    used = int(connection.execute(_USED, {"node": name, "statuses": _USING_MEMORY}).scalar_one())
    room = int(node.spec.get("memory", specs.NODE_MEMORY)) - used if node else 0
    rules.check_node(name, str(node.status) if node else None, room, needed, here)


def _one_at_a_time(connection: sa.Connection) -> None:
    """Serialises decommissions on PostgreSQL: each must see the other, as the last enabled node has to stay."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended("nodes", 0))))


def _enabled_nodes(connection: sa.Connection) -> list[str]:
    query = sa.select(objects.c.path).where(objects.c.kind == "node", objects.c.status == S.ENABLED)
    return [name_of(path) for path in connection.execute(query).scalars()]


def _admit_delete(
    connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row, terms: MachineTerms
) -> GrantExtras:
    """Admits delete and destroy of every kind: sets the retention; the clock may destroy only the entry it saw."""
    path, info = claim.request.path, None
    if isinstance(spec, specs.Delete) and row.then in IN_BIN:
        account = connection.execute(_SPEC, {"which": rules.account_of(path)}).scalar_one_or_none()  # its lock is held
        stays = rules.retention(spec.retention_days, account, specs.DEFAULT_RETENTION_DAYS)
        terms = terms.model_copy(update={"until": rules.until(claim.at, stays)})
        info = {"until": terms.until}  # written at begin, so that the clock finds it when it is woken
    if isinstance(spec, specs.Destroy) and spec.bin is not None:
        rules.check_bin(path, found.status if found else NONE, found.info.get("bin") if found else None, spec.bin)
    return GrantExtras(details=terms, info=info, spec=_stored_spec(spec))


def _ended(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Removes the retention time of an object whose delete did not succeed."""
    if grant.action != "delete" or outcome.result is Result.SUCCEEDED:
        return
    found = _object(connection, grant.path)
    if found and found.status not in IN_BIN and "until" in found.info:
        kept = merge_info(found.info, {"until": None})
        set_details(connection, grant.path, info=kept)


def _stored_spec(spec: BaseModel | None) -> dict[str, Any] | None:
    """Returns a new object's whole spec with its defaults, so that readers need not know them."""
    return spec.model_dump(exclude_none=True) if isinstance(spec, specs.NewObjectSpec) else None


def _unless_orphan(admit: AdmitHook) -> AdmitHook:
    """An orphan has neither parents nor contents that matter: only the worker that reaches the hypervisor."""

    def admit_any(
        connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row
    ) -> GrantExtras:
        if isinstance(spec, OrphanSpec):
            return GrantExtras(details=OrphanTerms(queue=QUEUE))
        return admit(connection, claim, spec, found, row)

    return admit_any


HOOKS: dict[str, Hooks] = {
    "machine": Hooks(locks=_machine_locks, admit=_unless_orphan(_admit_machine), ended=_ended),
    "cloudspace": Hooks(locks=_cloudspace_locks, admit=_unless_orphan(_admit_cloudspace), ended=_ended),
    "account": Hooks(admit=_admit_account, ended=_ended),
    "disk": Hooks(locks=_disk_locks, admit=_unless_orphan(_admit_disk), ended=_ended),
    "image": Hooks(admit=_unless_orphan(_admit_image), ended=_ended),
    "node": Hooks(admit=_unless_orphan(_admit_node)),
}
