"""Writes everything that an admitted action needs at begin: status, epoch, history, locks and the grant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.judging import AdmissionPlan
from domain.limits import VMS_PER_CHUNK
from domain.locks import LockMode
from domain.model import BeginRequest, Chunk, Grant, LockHolder, NewObject
from domain.paths import parent_of
from domain.requests import spec_digest
from domain.statetable import NONE, Actor, Row, Ruling
from store.delegation import PrincipalCheck
from store.epochs import insert_action
from store.history import history_line, merge_info
from store.hooks import GrantExtras
from store.schema import ActionRow, ObjectRow, locks, objects
from store.status import ObjectSet, create_objects, record_lines

_INSERT_LOCKS = sa.insert(locks)

_VACANT_OBJECTS = ObjectSet(
    objects.c.path.in_(sa.bindparam("names", expanding=True)),
    objects.c.status.in_(sa.bindparam("vacant", expanding=True)),
)

# Compare and set: matches only objects still in the status that was judged.
_OBJECT_ITSELF = ObjectSet(objects.c.path == sa.bindparam("which"), objects.c.status == sa.bindparam("came_from"))
_MEMBERS_TO_TAKE = ObjectSet(
    objects.c.parent == sa.bindparam("which"),
    objects.c.kind == sa.bindparam("member"),
    objects.c.status == sa.bindparam("came_from"),
    objects.c.epoch != sa.bindparam("mine"),  # not members that this action has just moved out of another status
)
_TAKEN_MEMBERS = ObjectSet(objects.c.parent == sa.bindparam("which"), objects.c.epoch == sa.bindparam("mine"))


def _select_member_ranges() -> sa.Select[Any]:
    """Builds the query that cuts members in some statuses into chunks: path ranges of one place, with counts."""
    numbered = (
        sa.select(
            objects.c.placement,
            objects.c.path,
            sa.func.row_number().over(partition_by=objects.c.placement, order_by=objects.c.path).label("n"),
        )
        .where(
            objects.c.parent == sa.bindparam("which"),
            objects.c.kind == sa.bindparam("member"),
            objects.c.status.in_(sa.bindparam("statuses", expanding=True)),
        )
        .subquery()
    )
    part = (numbered.c.n - 1) // sa.literal_column(str(VMS_PER_CHUNK), sa.Integer)
    return (
        sa.select(numbered.c.placement, sa.func.min(numbered.c.path), sa.func.max(numbered.c.path), sa.func.count())
        .group_by(numbered.c.placement, part)
        .order_by(numbered.c.placement, part)
    )


SELECT_MEMBER_RANGES = _select_member_ranges()
Range = tuple[str, str, str, int]  # the place, the first and the last path, how many


@dataclass(frozen=True)
class GrantWriter:
    """Writes an admitted action: object, members, history, locks and grant."""

    connection: sa.Connection
    claim: BeginRequest
    asked: registry.ResolvedRequest
    plan: AdmissionPlan
    row: Row
    extra: GrantExtras
    behind: list[LockHolder]
    mandate: PrincipalCheck
    want: dict[str, LockMode]

    def write_new_object(self) -> Grant:
        """Creates the object, and what its family creates with it."""
        request, extra = self.claim.request, self.extra
        born = sorted(extra.new_objects, key=lambda each: (each.placement, each.path))
        placed = [(each.placement, each.path) for each in born if each.placement and registry.is_member_kind(each.kind)]
        grant = self._write_grant(list(cut_into_ranges(placed)))
        spec = request.spec or {} if extra.spec is None else extra.spec
        itself = new_object_row(NewObject(request.path, self.asked.kind.name, extra.placement, spec))
        itself["principal"] = self._stored_principal()
        self._insert_objects([itself], self.row, grant.epoch, extra.info)
        self._create_members(born, grant)
        self._record_history(grant, many=bool(placed))
        self._insert_locks()
        return grant

    def write_existing_object(self, found: ObjectRow) -> Grant:
        """Moves an existing object, and the members whose rows allow it, to their transitional statuses."""
        path, members, placement = self.claim.request.path, self.plan.members, found.placement
        which = {"which": path, "member": self.asked.kind.member}
        placed = [(placement, path)] if placement and registry.is_member_kind(self.asked.kind.name) else []
        ranges = list(cut_into_ranges(placed))
        if members:
            found_members = self.connection.execute(SELECT_MEMBER_RANGES, which | {"statuses": list(members)})
            ranges = [(*row,) for row in found_members]
        grant = self._write_grant(ranges)
        if self.row.hidden:  # writes no status and no epoch: other actions run on the object meanwhile
            self._record_history(grant, many=False)
            self._insert_locks()
            return grant
        came_from = self.plan.came_from
        values = columns_at_begin(self.row, came_from, grant.epoch, self.claim.at) | self._new_info(found)
        changed = _OBJECT_ITSELF.change_objects(self.connection, {"which": path, "came_from": came_from}, values)
        if changed != 1:  # a bug, as its row is locked since it was judged: roll back
            raise RuntimeError(f"{path} is not {came_from} any more")
        self._create_members(list(self.extra.new_objects), grant)
        if members:
            self._move_members_to_transitional(which | {"mine": grant.epoch}, grant)
        self._record_history(grant, many=bool(members))
        self._insert_locks()
        return grant

    def _move_members_to_transitional(self, which: dict[str, Any], grant: Grant) -> None:
        """Moves the members under way. Fails if their number is not that of the grant."""
        taken = 0
        for status, row in self.plan.members.items():
            changes = columns_at_begin(row, status, grant.epoch, self.claim.at)
            taken += _MEMBERS_TO_TAKE.change_objects(self.connection, {**which, "came_from": status}, changes)
        if taken != grant.targets:  # a bug, as their rows are locked since they were judged
            raise RuntimeError(f"{taken} members of {grant.path} go along, not {grant.targets}")

    def _write_grant(self, ranges: Sequence[Range]) -> Grant:
        """Builds the grant and stores it with the action; its epoch is the action's."""
        request = self.claim.request
        grant = Grant(
            epoch=0,
            path=request.path,
            action=request.action,
            ruling=Ruling.GO,
            came_from=self.plan.came_from,
            during=self.plan.came_from if self.row.hidden else str(self.row.during),
            then=self.row.success_status(self.plan.came_from),
            chunks=ranges_to_chunks(ranges, 0, request.action),
            targets=sum(count for *_, count in ranges),
            skipped=self.plan.skipped,
            details=self.extra.details.model_dump(mode="json", exclude_unset=True) if self.extra.details else {},
            behind=self.behind,
            principal=self.mandate.principal.name if self.mandate.principal else "",
            denied=self.mandate.denied,
        )
        kept = {
            "run": self.claim.run,
            "began_at": self.claim.at,
            "started_at": self.claim.started,
            "grant": grant.model_dump(mode="json"),
            "planned": self.extra.planned_vms,
            "spec_digest": self.claim.spec_digest or spec_digest(request),
            "principal": self._stored_principal(),
            **request.model_dump(include=set(ActionRow._fields)),
        }
        return add_epoch_to_grant(grant, insert_action(self.connection, kept), self.claim.run)

    def _stored_principal(self) -> dict[str, Any] | None:
        return self.mandate.principal.model_dump(mode="json") if self.mandate.principal else None

    def _new_info(self, found: ObjectRow) -> dict[str, Any]:
        """Returns the info and spec that the hook stores with the object, and who answers for it from now on."""
        news: dict[str, Any] = {}
        if self.asked.verb.remakes:
            news["principal"] = self._stored_principal()
        if self.extra.info is not None:
            news["info"] = merge_info(found.info, self.extra.info)
        if self.extra.spec is not None:
            news["spec"] = self.extra.spec
        return news

    def _create_members(self, born: list[NewObject], grant: Grant) -> None:
        """Inserts the members and parts that the action creates, each by the creation row of its kind."""
        by_kind: defaultdict[str, list[NewObject]] = defaultdict(list)
        for each in born:
            by_kind[each.kind].append(each)
        for kind, some in by_kind.items():
            row = registry.find_kind(kind).table.find_creation_row(grant.action)
            assert row, f"no row lets {grant.action} bring a {kind} into being"
            self._insert_objects([new_object_row(each) for each in some], row, grant.epoch)
            loose = [each for each in some if not (each.placement and registry.is_member_kind(kind))]
            if loose:
                made = (self.claim.at, Actor.USER, grant.action, NONE, str(row.during or row.then), grant.epoch)
                record_lines(self.connection, [history_line(each.path, *made) for each in loose])

    def _insert_objects(
        self, newborns: list[dict[str, Any]], row: Row, epoch: int, info: dict[str, Any] | None = None
    ) -> None:
        known = {"generation": epoch, **(info or {})}
        fresh = columns_at_begin(row, NONE, epoch, self.claim.at) | {"created_at": self.claim.at, "info": known}
        vacant = registry.find_kind(newborns[0]["kind"]).table.vacant_statuses
        if vacant:  # the old object's row goes; its history stays
            names = [newborn["path"] for newborn in newborns]
            _VACANT_OBJECTS.remove_objects(self.connection, {"names": names, "vacant": vacant})
        create_objects(self.connection, [newborn | fresh for newborn in newborns])

    def _record_history(self, grant: Grant, many: bool) -> None:
        told = history_line(
            grant.path, self.claim.at, Actor.USER, grant.action, grant.came_from, grant.during, grant.epoch
        )
        record_lines(self.connection, [told])
        if many:
            which = {"which": grant.path, "mine": grant.epoch}
            line = {"at": self.claim.at, "actor": Actor.USER.value, "action": grant.action}
            _TAKEN_MEMBERS.record_lines_after_move(self.connection, which, line)

    def _insert_locks(self) -> None:
        rest = {
            "owner": self.asked.workflow_id,
            "run": self.claim.run,
            "since": self.claim.at,
            "action": self.row.action,
        }
        self.connection.execute(
            _INSERT_LOCKS, [{"path": path, "mode": mode.value} | rest for path, mode in self.want.items()]
        )


def columns_at_begin(row: Row, came_from: str, epoch: int, at: datetime) -> dict[str, Any]:
    """Returns the columns that begin writes to an object by this row."""
    under_way = row.during is not None
    return {
        "status": row.during if under_way else row.success_status(came_from),
        "previous_status": came_from,
        "target_action": row.action if under_way else NONE,
        "target_status": row.target_status(came_from) if under_way else NONE,
        "epoch": epoch,
        "changed_at": at,
        "error": "",
    }


def grant_of_action(action: ActionRow) -> Grant:
    """Returns the grant that is stored with an action."""
    return add_epoch_to_grant(Grant.model_validate(action.grant), action.epoch, action.run)


def add_epoch_to_grant(grant: Grant, epoch: int, run: str) -> Grant:
    """Fills the action's epoch and run into a grant and its chunks."""
    chunks = [chunk.model_copy(update={"epoch": epoch}) for chunk in grant.chunks]
    return grant.model_copy(update={"epoch": epoch, "run": run, "chunks": chunks})


def new_object_row(born: NewObject) -> dict[str, Any]:
    """Returns the columns that identify a new object; status and epoch come from its row."""
    return {
        "path": born.path,
        "kind": born.kind,
        "parent": parent_of(born.path) or "",
        "placement": born.placement,
        "spec": born.spec,
    }


def cut_into_ranges(placed: Iterable[tuple[str, str]]) -> Iterable[Range]:
    """Pairs of a place and a path, sorted, as ranges of at most VMS_PER_CHUNK in one place."""
    for place, some in groupby(placed, key=itemgetter(0)):
        paths = [path for _, path in some]
        for first in range(0, len(paths), VMS_PER_CHUNK):
            part = paths[first : first + VMS_PER_CHUNK]
            yield place, part[0], part[-1], len(part)


def ranges_to_chunks(ranges: Iterable[Range], epoch: int, action: str) -> list[Chunk]:
    """Ranges as chunks of an action."""
    return [
        Chunk(epoch=epoch, placement=place, action=action, first=first, last=last, count=count)
        for place, first, last, count in ranges
    ]
