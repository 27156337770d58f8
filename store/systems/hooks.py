"""Hooks and transactions of the systems family: admission, deploys and their reversal, observed services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import sqlalchemy as sa
from pydantic import BaseModel

from domain.errors import Category, Refused
from domain.model import Claim, Grant, Move, NewObject, Outcome, Step, Stepped
from domain.orphans import OrphanSpec, OrphanTerms
from domain.paths import ancestors, parent_of
from domain.statetable import NONE, Actor, Row, Ruling
from domain.systems.ports import AcceptDeploy, RevertDeploy, SystemTerms, SystemWork, backend_queue
from domain.systems.rules import (
    FORMER,
    LEAVING,
    ServiceFacts,
    StoredPart,
    check_fits,
    leaving_part,
    observation,
    observed,
    only_rescaled,
    replacement,
    reversal,
)
from domain.systems.specs import DeploySpec, Node, SystemSpec, is_service, jobs_of, stored_spec
from domain.systems.tables import BACKEND, LETTERS, PART, SYSTEM, DeployStage, PartState
from store.clock import written_at
from store.history import history_line
from store.hooks import GrantExtras, Hooks, MaybeRow
from store.rows import find_object, lock_object, read_all
from store.schema import LEAVING_PARTS, ObjectRow, Path, json_text, objects, table
from store.status import ObjectSet
from store.steps import apply_step
from store.transaction import Store, transaction


class NumberRow(NamedTuple):
    """The last number that was given to a deploy or a teardown of a system."""

    system: Path
    action: str
    last: Annotated[int, sa.BigInteger()]


numbers = table("system_numbers", NumberRow, ("system", "action"))


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
_COUNTED = (
    sa.update(numbers)
    .where(numbers.c.system == sa.bindparam("which"), numbers.c.action == sa.bindparam("what"))
    .values(last=numbers.c.last + 1)
    .returning(numbers.c.last)
)
_STATUS = sa.select(objects.c.status).where(objects.c.path == sa.bindparam("at_path"))
_PARTS = [objects.c[name] for name in PartRow._fields]
_ALL = sa.select(*_PARTS).where(objects.c.kind == PART.kind)
_BELOW = sa.select(*_PARTS).where(
    objects.c.kind == PART.kind, objects.c.path > sa.bindparam("first"), objects.c.path < sa.bindparam("last")
)
# Observations change parts at rest without an action, so decisions lock the rows, in path order.
_JUDGED = _BELOW.order_by(objects.c.path).with_for_update()
_SEEN = (
    sa.select(objects.c.path, objects.c.status, objects.c.epoch)
    .where(objects.c.path.in_(sa.bindparam("names", expanding=True)), objects.c.target_action == NONE)
    .order_by(objects.c.path)
    .with_for_update()
)
_LEAVING = sa.select(objects.c.path, objects.c.epoch).where(
    LEAVING_PARTS, json_text(objects.c.info, LEAVING) == sa.bindparam("by"), objects.c.target_action == NONE
)
_OBSERVED = ObjectSet(
    objects.c.path == sa.bindparam("which"), objects.c.epoch == sa.bindparam("mine"), objects.c.target_action == NONE
)


def admit(connection: sa.Connection, claim: Claim, spec: BaseModel | None, found: MaybeRow, row: Row) -> GrantExtras:
    """Admits an action on a system or part: its system must be stable and the definition must fit in its tree."""
    request = claim.request
    root = _root(request.path)
    if isinstance(spec, SystemSpec):
        connection.execute(sa.insert(numbers), [{"system": root, "action": each, "last": 0} for each in LETTERS])
        return GrantExtras(details=SystemTerms(backend=spec.backend), spec=spec.model_dump(mode="json"))
    if isinstance(spec, OrphanSpec):  # what its system is, or whether there is one, does not matter
        queue = {"queue": backend_queue(spec.place)} if spec.place else {}
        return GrantExtras(details=OrphanTerms(place=spec.place, **queue))
    system = found if root == request.path else _alive(connection, root)
    backend = str(system.spec["backend"]) if system else ""
    if request.action not in LETTERS:
        return GrantExtras(details=SystemTerms(backend=backend))
    known: dict[str, Any] = {}
    if isinstance(spec, DeploySpec):
        above = _stored_part(connection, parent_of(request.path))
        check_fits(request.path, spec.definition, backend, above, request.path == root)
        former = {FORMER: {"spec": found.spec if found else None}} | ({LEAVING: None} if found else {})
        known = {"spec": stored_spec(spec.definition), "info": former}
        if found and root == request.path:  # a system keeps its own spec; its parts have records of their own
            made_with = {name: value for name, value in found.spec.items() if name != "jobs"}
            known["spec"] = made_with | jobs_of(known["spec"])
    name = f"{LETTERS[request.action]}{_next_number(connection, root, request.action)}"
    record = f"{request.path}::{request.action}:{name}"
    told = {"by": request.requested_by, "reason": request.reason}
    born = NewObject(record, request.action, "", told)
    return GrantExtras(births=[born], details=SystemTerms(backend=backend, name=name, record=record), **known)


def ended(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Deletes the deploy and teardown records of a deleted system; their history stays."""
    if grant.action == "delete" and outcome.status == NONE:
        below = (objects.c.path > f"{grant.path}:") & (objects.c.path < f"{grant.path};")
        records = below & objects.c.kind.in_(tuple(LETTERS))
        told = {"at": at, "actor": Actor.CONTROLLER.value, "action": "forget", "to": NONE, "message": "with its system"}
        ObjectSet(records).move(connection, {}, told, {})
        connection.execute(sa.delete(numbers).where(numbers.c.system == grant.path))


HOOKS = dict.fromkeys((SYSTEM.kind, PART.kind), Hooks(admit=admit, ended=ended))


def _accept(connection: sa.Connection, acceptance: AcceptDeploy) -> Stepped:
    """Writes a deploy's new definition and accepts its record, in one step. Idempotent."""
    work = acceptance.work
    if _status(connection, work.record) not in (DeployStage.PENDING, NONE):
        return Stepped(made=True)
    own = lock_object(connection, work.path)
    assert own
    there = {row.path: _part_from_row(row) for row in _below(connection, work.path, _JUDGED)}
    moves = replacement(work.path, Node.model_validate(acceptance.definition), there, work.backend)
    former = own.info.get(FORMER, {}).get("spec")
    if former and is_service(former) and is_service(own.spec) and only_rescaled(former, own.spec):
        moves.append(Move(path=work.path, to=PartState.SCALING))
    moves.append(Move(path=work.record, to=DeployStage.ACCEPTED))
    return apply_step(connection, HOOKS, Step(path=work.path, epoch=work.epoch, at=acceptance.at, moves=moves))


def _accept_removal(connection: sa.Connection, asked: RevertDeploy) -> Stepped:
    work = asked.work
    moves = [
        leaving_part(row.path, work.backend)
        for row in _below(connection, work.path, _JUDGED)
        if row.status != PartState.DELETING
    ]
    if work.record and _status(connection, work.record) == DeployStage.PENDING:
        moves.append(Move(path=work.record, to=DeployStage.ACCEPTED))
    return apply_step(connection, HOOKS, Step(path=work.path, epoch=work.epoch, at=asked.at, moves=moves))


def _revert(connection: sa.Connection, asked: RevertDeploy) -> Stepped:
    work = asked.work
    own = lock_object(connection, work.path)
    assert own
    there = _below(connection, work.path, _JUDGED)
    touched = [row for row in there if row.epoch == work.epoch and FORMER in row.info]
    moves = reversal([(_part_from_row(row), row.info[FORMER]) for row in touched], work.backend)
    if former := own.info.get(FORMER, {}).get("spec"):
        moves.append(Move(path=work.path, to=own.status, spec=former))
    return apply_step(connection, HOOKS, Step(path=work.path, epoch=work.epoch, at=asked.at, moves=moves))


def _touched(connection: sa.Connection, work: SystemWork) -> list[StoredPart]:
    rows = _parts_at_and_below(connection, work.path)
    mine = [row for row in rows if row.epoch == work.epoch and row.target_action != NONE]
    return [_part_from_row(row) for row in mine if row.status in PART.transitional]


def _services(connection: sa.Connection, prefix: str) -> list[StoredPart]:
    rows = _parts_at_and_below(connection, prefix) if prefix else read_all(PartRow, connection.execute(_ALL))
    return [_part_from_row(row) for row in rows if is_service(row.spec)]


def _observe(connection: sa.Connection, facts: Sequence[ServiceFacts], at: datetime) -> int:
    """Writes what a backend reports of parts at rest: compare and set, by a row of the backend's. Returns how many."""
    at = written_at(connection, at)
    by_path = {each.path: each for each in facts}
    changes: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for path, status, epoch in connection.execute(_SEEN, {"names": list(by_path)}).all():
        to = observed(status, by_path[path])
        if to == status or PART.judge_step(status, to, BACKEND).ruling is Ruling.REFUSED:
            continue
        move = observation(path, to, by_path[path])
        fresh = {"status": to, "previous_status": status, "changed_at": at, "error": move.error}
        changes.append({"which": path, "mine": epoch} | fresh)
        lines.append(history_line(path, at, move.actor, "observe", status, to, epoch, move.error))
    _OBSERVED.change_each(connection, changes, lines)
    return len(changes)


def _leaving(connection: sa.Connection, backend: str) -> dict[str, int]:
    return {row.path: row.epoch for row in connection.execute(_LEAVING, {"by": backend})}


def _forget(connection: sa.Connection, parts: Mapping[str, int], at: datetime) -> int:
    """Deletes parts that the backend has removed, if they are unchanged and nothing is below them. Returns how many."""
    at = written_at(connection, at)
    gone: set[str] = set()
    for path, status, epoch in reversed(connection.execute(_SEEN, {"names": list(parts)}).all()):
        kept = any(row.path not in gone for row in _below(connection, path))
        if kept or epoch != parts[path] or PART.judge_step(status, NONE, BACKEND).ruling is Ruling.REFUSED:
            continue
        line = history_line(path, at, BACKEND, "observe", status, NONE, epoch, "its backend has removed it")
        _OBSERVED.change(connection, {"which": path, "mine": epoch}, {"status": NONE}, [line])
        gone.add(path)
    return len(gone)


def _root(path: str) -> str:
    return next(iter(ancestors(path)), path)


def _alive(connection: sa.Connection, root: str) -> ObjectRow:
    """Returns the system of a part; refuses if there is none or it cannot be changed now."""
    system = find_object(connection, root)
    if system is None:
        raise Refused(Category.NOT_FOUND, f"there is no such System: {root}", "see what there is: starter system list")
    if system.status != PartState.STABLE:
        told = f"deploy is not allowed for System under {system.status}"
        raise Refused(Category.NOT_ALLOWED, told, f"{root} is {system.status}; allowed now: delete")
    return system


def _stored_part(connection: sa.Connection, path: str | None) -> StoredPart | None:
    row = find_object(connection, path) if path else None
    return _part_from_row(row) if row else None


def _next_number(connection: sa.Connection, system: str, action: str) -> int:
    """Returns the next number of a system's deploys or teardowns; concurrent ones never get the same."""
    return int(connection.execute(_COUNTED, {"which": system, "what": action}).scalar_one())


def _status(connection: sa.Connection, path: str) -> str:
    found = connection.execute(_STATUS, {"at_path": path}).scalar_one_or_none()
    return str(found or NONE)


def _below(connection: sa.Connection, path: str, query: sa.Select[Any] = _BELOW) -> list[PartRow]:
    return read_all(PartRow, connection.execute(query, {"first": f"{path}:", "last": f"{path};"}))


def _parts_at_and_below(connection: sa.Connection, path: str) -> list[PartRow | ObjectRow]:
    """Returns the part at a path and all parts below it. A system is not a part of itself."""
    own = find_object(connection, path)
    return [*([own] if own and own.kind == PART.kind else []), *_below(connection, path)]


def _part_from_row(row: PartRow | ObjectRow) -> StoredPart:
    under_way = row.target_action != NONE
    leaving = LEAVING in row.info
    return StoredPart(row.path, row.status, row.spec, row.previous_status, under_way, leaving)


class SqlSystems(Store):
    """The systems family's store: `domain.systems.ports.SystemStore` on SQLite or PostgreSQL."""

    accept = transaction(_accept)
    accept_removal = transaction(_accept_removal)
    revert = transaction(_revert)
    touched = transaction(_touched)
    services = transaction(_services)
    observe = transaction(_observe)
    leaving = transaction(_leaving)
    forget = transaction(_forget)
