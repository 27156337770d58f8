"""Hooks and transactions of the systems family: admission, deploys and their reversal, observed services."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Annotated, Any, NamedTuple, TypeVar

import sqlalchemy as sa

from domain.dryrun import PlannedChange
from domain.errors import Category, Refused
from domain.model import BeginRequest, Grant, Move, NewObject, Outcome, Step, StepResult
from domain.orphans import OrphanGrantDetails, OrphanSpec
from domain.paths import ancestor_paths, parent_of
from domain.services.definition import Node
from domain.services.rollout import ServiceFacts
from domain.statetable import NONE, Actor, Ruling
from domain.systems.ports import AcceptDeploy, RevertDeploy, SystemGrantDetails, SystemWork, backend_queue
from domain.systems.rules import (
    FORMER_KEY,
    HOST_BACKENDS,
    LEAVING_KEY,
    StoredPart,
    check_definition_fits,
    check_ports_free,
    check_ports_passed_on,
    is_only_rescaled,
    observation_move,
    observed_status,
    published_ports,
    removal_begun_move,
    replacement_moves,
    reversal_moves,
    subtree_definition,
)
from domain.systems.specs import DeploySpec, SystemSpec, is_service, stored_jobs, stored_spec
from domain.systems.tables import BACKEND, NUMBER_PREFIX_OF, PART, SYSTEM, DeployStage, PartState
from store.dbtime import resolve_write_time
from store.history import NOT_OWNED_MESSAGE, history_line
from store.hooks import AdmissionFacts, GrantExtras, Hooks
from store.hostports import release_ports, reserve_ports
from store.rows import LOCK_AT_REST, find_object, lock_object
from store.schema import IS_LEAVING_PART, ObjectRow, Path, define_table, json_key_as_text, objects
from store.status import ObjectSet
from store.steps import apply_step, lock_action
from store.systems.definitions import delete_definitions, read_definition, store_definition
from store.transaction import SqlStore, transaction

Asked = TypeVar("Asked", AcceptDeploy, RevertDeploy)


class DeployNumberRow(NamedTuple):
    """The last number that was given to a deploy or a teardown of a system."""

    system: Path
    action: str
    last: Annotated[int, sa.BigInteger()]


SERVICES_HOST = "services"  # the machine of the workers that run services: a data folder has one
deploy_numbers = define_table("system_numbers", DeployNumberRow, ("system", "action"))


class PartRow(NamedTuple):
    """A part as actions on its system read it."""

    path: str
    status: str
    previous_status: str
    target_action: str
    spec: dict[str, Any]
    info: dict[str, Any]
    epoch: int


# Built once: building a statement costs more than running it.
_RAISE_NUMBER = (
    sa.update(deploy_numbers)
    .where(deploy_numbers.c.system == sa.bindparam("which"), deploy_numbers.c.action == sa.bindparam("what"))
    .values(last=deploy_numbers.c.last + 1)
    .returning(deploy_numbers.c.last)
)
_PART_COLUMNS = [objects.c[name] for name in PartRow._fields]
_SELECT_PARTS = sa.select(*_PART_COLUMNS).where(objects.c.kind == PART.kind)
_SELECT_PARTS_BELOW = sa.select(*_PART_COLUMNS).where(
    objects.c.kind == PART.kind, objects.c.path > sa.bindparam("first"), objects.c.path < sa.bindparam("last")
)
# Observations change parts at rest without an action, so decisions lock the rows, in path order.
_LOCK_PARTS_BELOW = _SELECT_PARTS_BELOW.order_by(objects.c.path).with_for_update()
_SELECT_LEAVING_PARTS = sa.select(objects.c.path, objects.c.epoch).where(
    IS_LEAVING_PART,
    json_key_as_text(objects.c.info, LEAVING_KEY) == sa.bindparam("by"),
    objects.c.target_action == NONE,
)
_PART_AT_REST = ObjectSet(
    objects.c.path == sa.bindparam("which"), objects.c.epoch == sa.bindparam("mine"), objects.c.target_action == NONE
)


def admit_system_action(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Admits an action on a system or part: its system must be stable and the definition must fit in its tree."""
    claim, spec, object_row, _ = facts
    request = claim.request
    root = next(iter(ancestor_paths(request.path)), request.path)
    if isinstance(spec, SystemSpec):
        connection.execute(
            sa.insert(deploy_numbers), [{"system": root, "action": letter, "last": 0} for letter in NUMBER_PREFIX_OF]
        )
        return GrantExtras(details=SystemGrantDetails(backend=spec.backend), spec=spec.model_dump(mode="json"))
    if isinstance(spec, OrphanSpec):  # what its system is, or whether there is one, does not matter
        queue = {"queue": backend_queue(spec.place)} if spec.place else {}
        return GrantExtras(details=OrphanGrantDetails(place=spec.place, **queue))
    system = object_row if root == request.path else _lock_living_system(connection, root)
    backend = str(system.spec["backend"]) if system else ""
    if request.action not in NUMBER_PREFIX_OF:
        return GrantExtras(details=SystemGrantDetails(backend=backend))
    known: dict[str, Any] = {}
    if isinstance(spec, DeploySpec):
        above = _find_part(connection, parent_of(request.path))
        check_definition_fits(request.path, spec.definition, backend, above, request.path == root)
        _reserve_ports(connection, claim, spec.definition, backend)
        info = {FORMER_KEY: {"spec": object_row.spec if object_row else None}} | (
            {LEAVING_KEY: None} if object_row else {}
        )
        known = {"spec": stored_spec(spec.definition), "info": info}
        if object_row and root == request.path:  # a system keeps its own spec; its parts have records of their own
            made_with = {name: value for name, value in object_row.spec.items() if name != "jobs"}
            known["spec"] = made_with | stored_jobs(known["spec"])
    name = f"{NUMBER_PREFIX_OF[request.action]}{_next_deploy_number(connection, root, request.action)}"
    record = f"{request.path}::{request.action}:{name}"
    if isinstance(spec, DeploySpec):
        former = _read_definition_at(connection, object_row) if object_row else None
        store_definition(connection, record, (request.spec or {})["definition"], former)
    told = {"by": request.requested_by, "reason": request.reason}
    born = NewObject(record, request.action, "", told)
    return GrantExtras(
        new_objects=[born], details=SystemGrantDetails(backend=backend, name=name, record=record), **known
    )


def _reserve_ports(connection: sa.Connection, claim: BeginRequest, definition: Node, backend: str) -> None:
    """Reserves the ports that the new definition publishes, or refuses."""
    path = claim.request.path
    if backend not in HOST_BACKENDS:
        return
    wanted = published_ports(path, definition)
    there = [_part_from_row(row) for row in _read_parts_at_and_below(connection, path)]
    check_ports_passed_on(wanted, definition, path, there)
    check_ports_free(reserve_ports(connection, SERVICES_HOST, claim.run, path, wanted))


def finish_system_action(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Releases ports that no definition has, and deletes the records of a deleted system; their history stays."""
    release_ports(connection, grant.path)
    if grant.action == "delete" and outcome.status == NONE:
        below = (objects.c.path > f"{grant.path}:") & (objects.c.path < f"{grant.path};")
        records = below & objects.c.kind.in_(tuple(NUMBER_PREFIX_OF))
        told = {"at": at, "actor": Actor.CONTROLLER.value, "action": "forget", "to": NONE, "message": "with its system"}
        ObjectSet(records).move_objects(connection, {}, told, {})
        connection.execute(sa.delete(deploy_numbers).where(deploy_numbers.c.system == grant.path))
        delete_definitions(connection, grant.path)


def preview_system_action(connection: sa.Connection, claim: BeginRequest, grant: Grant) -> Sequence[PlannedChange]:
    """Moves the services that a deploy would change, or a removal would stop, for a dry run."""
    details = SystemGrantDetails.model_validate(grant.details)
    work = SystemWork(path=grant.path, epoch=grant.epoch, backend=details.backend, record=details.record)
    if grant.action == "deploy":
        definition = (claim.request.spec or {})["definition"]
        _accept_deploy(connection, AcceptDeploy(work=work, definition=definition, at=claim.at))
    elif grant.action in ("teardown", "delete"):
        _accept_removal(connection, RevertDeploy(work=work, at=claim.at))
    return ()


HOOKS = dict.fromkeys(
    (SYSTEM.kind, PART.kind),
    Hooks(admit=admit_system_action, on_finish=finish_system_action, rehearse=preview_system_action),
)


def _apply_in_open_action(
    plan: Callable[[sa.Connection, Asked], list[Move]],
) -> Callable[[sa.Connection, Asked], StepResult]:
    """Makes a transaction that applies the planned moves in one step, if the action is open, which it then stays until
    the transaction ends. Before anything is judged: a worker that was frozen may find another system of this name, or
    none."""

    @wraps(plan)
    def apply(connection: sa.Connection, asked: Asked) -> StepResult:
        work = asked.work
        action = lock_action(connection, work.epoch)
        if action is None or action.path != work.path or action.ended_at is not None:
            return StepResult(made=False, refusals=[f"{work.path}: {NOT_OWNED_MESSAGE}"])
        step = Step(path=work.path, epoch=work.epoch, at=asked.at, moves=plan(connection, asked))
        return apply_step(connection, HOOKS, step, action)

    return apply


@_apply_in_open_action
def _accept_deploy(connection: sa.Connection, acceptance: AcceptDeploy) -> list[Move]:
    """Writes a deploy's new definition and accepts its record, in one step. Idempotent."""
    work = acceptance.work
    if _read_status(connection, work.record) not in (DeployStage.PENDING, NONE):
        return []
    own = lock_object(connection, work.path)
    assert own
    there = {row.path: _part_from_row(row) for row in _read_parts_below(connection, work.path, _LOCK_PARTS_BELOW)}
    moves = replacement_moves(work.path, Node.model_validate(acceptance.definition), there, work.backend)
    former = own.info.get(FORMER_KEY, {}).get("spec")
    if former and is_service(former) and is_service(own.spec) and is_only_rescaled(former, own.spec):
        moves.append(Move(path=work.path, to=PartState.SCALING))
    return [*moves, Move(path=work.record, to=DeployStage.ACCEPTED)]


@_apply_in_open_action
def _accept_removal(connection: sa.Connection, asked: RevertDeploy) -> list[Move]:
    work = asked.work
    moves = [
        removal_begun_move(row.path, work.backend)
        for row in _read_parts_below(connection, work.path, _LOCK_PARTS_BELOW)
        if row.status != PartState.DELETING
    ]
    if work.record and _read_status(connection, work.record) == DeployStage.PENDING:
        moves.append(Move(path=work.record, to=DeployStage.ACCEPTED))
    return moves


@_apply_in_open_action
def _revert_deploy(connection: sa.Connection, asked: RevertDeploy) -> list[Move]:
    work = asked.work
    own = lock_object(connection, work.path)
    assert own
    there = _read_parts_below(connection, work.path, _LOCK_PARTS_BELOW)
    touched = [row for row in there if row.epoch == work.epoch and FORMER_KEY in row.info]
    moves = reversal_moves([(_part_from_row(row), row.info[FORMER_KEY]) for row in touched], work.backend)
    if former := own.info.get(FORMER_KEY, {}).get("spec"):
        moves.append(Move(path=work.path, to=own.status, spec=former))
    return moves


def _list_changed_parts(connection: sa.Connection, work: SystemWork) -> list[StoredPart]:
    rows = _read_parts_at_and_below(connection, work.path)
    mine = [row for row in rows if row.epoch == work.epoch and row.target_action != NONE]
    return [_part_from_row(row) for row in mine if row.status in PART.transitional_statuses]


def _list_services(connection: sa.Connection, prefix: str) -> list[StoredPart]:
    rows = (
        _read_parts_at_and_below(connection, prefix)
        if prefix
        else [PartRow(*row) for row in connection.execute(_SELECT_PARTS)]
    )
    return [_part_from_row(row) for row in rows if is_service(row.spec)]


def _record_observations(connection: sa.Connection, facts: Sequence[ServiceFacts], at: datetime) -> int:
    """Writes what a backend reports of parts at rest: compare and set, by a row of the backend's. Returns how many."""
    at = resolve_write_time(connection, at)
    by_path = {fact.path: fact for fact in facts}
    changes: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for path, status, epoch in connection.execute(LOCK_AT_REST, {"names": list(by_path)}).all():
        to = observed_status(status, by_path[path])
        if to == status or PART.judge_step(status, to, BACKEND).ruling is Ruling.REFUSED:
            continue
        move = observation_move(path, to, by_path[path])
        fresh = {"status": to, "previous_status": status, "changed_at": at, "error": move.error}
        changes.append({"which": path, "mine": epoch} | fresh)
        lines.append(history_line(path, at, move.actor, "observe", status, to, epoch, move.error))
    _PART_AT_REST.change_each_object(connection, changes, lines)
    return len(changes)


def _list_parts_being_removed(connection: sa.Connection, backend: str) -> dict[str, int]:
    return {row.path: row.epoch for row in connection.execute(_SELECT_LEAVING_PARTS, {"by": backend})}


def _delete_removed_parts(connection: sa.Connection, parts: Mapping[str, int], at: datetime) -> int:
    """Deletes parts that the backend has removed, if they are unchanged and nothing is below them. Returns how many."""
    at = resolve_write_time(connection, at)
    gone: set[str] = set()
    for path, status, epoch in reversed(connection.execute(LOCK_AT_REST, {"names": list(parts)}).all()):
        kept = any(row.path not in gone for row in _read_parts_below(connection, path))
        if kept or epoch != parts[path] or PART.judge_step(status, NONE, BACKEND).ruling is Ruling.REFUSED:
            continue
        line = history_line(path, at, BACKEND, "observe", status, NONE, epoch, "its backend has removed it")
        _PART_AT_REST.change_objects(connection, {"which": path, "mine": epoch}, {"status": NONE}, [line])
        release_ports(connection, path)
        gone.add(path)
    return len(gone)


def _lock_living_system(connection: sa.Connection, root: str) -> ObjectRow:
    """Returns the system of a part; refuses if there is none or it cannot be changed now."""
    system = find_object(connection, root)
    if system is None:
        raise Refused(Category.NOT_FOUND, f"there is no such System: {root}", "see what there is: starter system list")
    if system.status != PartState.STABLE:
        told = f"deploy is not allowed for System under {system.status}"
        raise Refused(Category.NOT_ALLOWED, told, f"{root} is {system.status}; allowed now: delete")
    return system


def _read_definition_at(connection: sa.Connection, top: ObjectRow) -> dict[str, Any] | None:
    """Returns the definition at a path as it is now; None for a system to which nothing was deployed."""
    specs = {top.path: top.spec} | {row.path: row.spec for row in _read_parts_below(connection, top.path)}
    return subtree_definition(top.path, specs)


def _find_part(connection: sa.Connection, path: str | None) -> StoredPart | None:
    row = find_object(connection, path) if path else None
    return _part_from_row(row) if row else None


def _next_deploy_number(connection: sa.Connection, system: str, action: str) -> int:
    """Returns the next number of a system's deploys or teardowns; concurrent ones never get the same."""
    return int(connection.execute(_RAISE_NUMBER, {"which": system, "what": action}).scalar_one())


def _read_status(connection: sa.Connection, path: str) -> str:
    row = find_object(connection, path)
    return row.status if row else NONE


def _read_parts_below(
    connection: sa.Connection, path: str, query: sa.Select[Any] = _SELECT_PARTS_BELOW
) -> list[PartRow]:
    return [PartRow(*row) for row in connection.execute(query, {"first": f"{path}:", "last": f"{path};"})]


def _read_parts_at_and_below(connection: sa.Connection, path: str) -> list[PartRow | ObjectRow]:
    """Returns the part at a path and all parts below it. A system is not a part of itself."""
    own = find_object(connection, path)
    return [*([own] if own and own.kind == PART.kind else []), *_read_parts_below(connection, path)]


def _part_from_row(row: PartRow | ObjectRow) -> StoredPart:
    under_way = row.target_action != NONE
    leaving = LEAVING_KEY in row.info
    return StoredPart(row.path, row.status, row.spec, row.previous_status, under_way, leaving)


class SqlSystemStore(SqlStore):
    """The systems family's store: `domain.systems.ports.SystemStore` on SQLite or PostgreSQL."""

    accept_deploy = transaction(_accept_deploy)
    accept_removal = transaction(_accept_removal)
    revert_deploy = transaction(_revert_deploy)
    list_changed_parts = transaction(_list_changed_parts)
    read_definition = transaction(read_definition)
    list_services = transaction(_list_services)
    record_observations = transaction(_record_observations)
    list_parts_being_removed = transaction(_list_parts_being_removed)
    delete_removed_parts = transaction(_delete_removed_parts)
