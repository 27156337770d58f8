"""Everything that an admitted action writes at its beginning: status, epoch, history, locks, and its grant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.limits import CHUNK_VMS
from domain.locks import Mode
from domain.machine import NONE, Actor, Row, Ruling
from domain.model import Chunk, Claim, Grant, NewObject
from domain.paths import parent_of
from store.recording import LINES, for_each, line
from store.schema import actions, locks, objects

_ACTION = sa.insert(actions).returning(actions.c.epoch)
_OBJECTS = sa.insert(objects)
_LOCKS = sa.insert(locks)

# Compare and set: only what is still in the status that was judged.
_ITSELF = sa.update(objects).where(
    objects.c.path == sa.bindparam("which"), objects.c.status == sa.bindparam("came_from")
)
_MEMBERS = sa.update(objects).where(
    objects.c.parent == sa.bindparam("which"),
    objects.c.kind == sa.bindparam("member"),
    objects.c.status == sa.bindparam("came_from"),
)
_MEMBER_LINES = for_each(
    objects.c.parent == sa.bindparam("which"),
    objects.c.epoch == sa.bindparam("mine"),
    source=objects.c.previous_status,
    to=objects.c.status,
)


def _ranges() -> sa.Select[Any]:
    """Members in some statuses, grouped by place and cut into ranges of paths: counted by the database."""
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
    part = (numbered.c.n - 1) // sa.literal_column(str(CHUNK_VMS), sa.Integer)
    return (
        sa.select(numbered.c.placement, sa.func.min(numbered.c.path), sa.func.max(numbered.c.path), sa.func.count())
        .group_by(numbered.c.placement, part)
        .order_by(numbered.c.placement, part)
    )


_RANGES = _ranges()


@dataclass(frozen=True)
class Plan:
    """What was decided: the object's own row, and the row for the members in each status that allows it."""

    row: Row | None  # None: there is nothing to do
    came_from: str
    members: dict[str, Row]
    skipped: dict[str, int]


@dataclass(frozen=True)
class Granting:
    """An admitted action, about to be written."""

    connection: sa.Connection
    claim: Claim
    kind: registry.Kind
    plan: Plan
    row: Row

    def create(self, births: Iterable[NewObject], want: dict[str, Mode]) -> Grant:
        """A new object, and its members if it is a group."""
        request, member = self.claim.request, self.kind.member
        born = sorted(births, key=lambda each: (each.placement, each.path))
        chunks = [(group[0].placement, group[0].path, group[-1].path, len(group)) for group in _cut(born, CHUNK_VMS)]
        grant = self._grant(chunks)
        itself = _newborn(NewObject(request.path, self.kind.name, "", request.spec or {}))
        self._insert([itself], self.row, grant.epoch)
        if member and born and (row := registry.kind(member).table.judge(NONE, request.action).row):
            self._insert([_newborn(each) for each in born], row, grant.epoch)
        self._record(grant, many=bool(born))
        self._lock(want)
        return grant

    def change(self, placement: str, want: dict[str, Mode]) -> Grant:
        """An object that is there, and those of its members that may go along."""
        path, members = self.claim.request.path, self.plan.members
        which = {"which": path, "member": self.kind.member}
        ranges: Sequence[Any] = [(placement, path, path, 1)] if placement else []
        if members:
            ranges = self.connection.execute(_RANGES, {**which, "statuses": list(members)}).all()
        grant = self._grant(ranges)
        self.connection.execute(
            _ITSELF,
            {"which": path, "came_from": self.plan.came_from}
            | self._changes(self.row, self.plan.came_from, grant.epoch),
        )
        for status, row in members.items():
            self.connection.execute(_MEMBERS, {**which, "came_from": status} | self._changes(row, status, grant.epoch))
        self._record(grant, many=bool(members))
        self._lock(want)
        return grant

    def _grant(self, ranges: Sequence[Any]) -> Grant:
        """The grant, kept with the action so that asking again gives it again; its epoch is the action's number."""
        request = self.claim.request
        grant = Grant(
            epoch=0,
            path=request.path,
            action=request.action,
            ruling=Ruling.GO,
            came_from=self.plan.came_from,
            during=str(self.row.during),
            then=self.row.success(self.plan.came_from),
            chunks=[
                Chunk(epoch=0, placement=place, action=request.action, first=first, last=last, count=count)
                for place, first, last, count in ranges
            ],
            targets=sum(count for *_, count in ranges),
            skipped=self.plan.skipped,
        )
        kept = {
            "run": self.claim.run,
            "began_at": self.claim.at,
            "grant": grant.model_dump(mode="json"),
            **request.model_dump(exclude={"spec"}),
        }
        return numbered(grant, int(self.connection.execute(_ACTION, kept).scalar_one()))

    def _changes(self, row: Row, came_from: str, epoch: int) -> dict[str, Any]:
        return {
            "status": row.during,
            "previous_status": came_from,
            "target_action": row.action,
            "target_status": row.success(came_from),
            "epoch": epoch,
            "changed_at": self.claim.at,
            "error": "",
        }

    def _insert(self, newborns: list[dict[str, Any]], row: Row, epoch: int) -> None:
        fresh = self._changes(row, NONE, epoch) | {"created_at": self.claim.at, "info": {"generation": epoch}}
        self.connection.execute(_OBJECTS, [newborn | fresh for newborn in newborns])

    def _record(self, grant: Grant, many: bool) -> None:
        told = line(grant.path, self.claim.at, Actor.USER, grant.action, grant.came_from, grant.during, grant.epoch)
        self.connection.execute(LINES, told)
        if many:
            which = {"which": grant.path, "mine": grant.epoch}
            self.connection.execute(
                _MEMBER_LINES,
                which | {"at": self.claim.at, "actor": Actor.USER.value, "action": grant.action, "message": ""},
            )

    def _lock(self, want: dict[str, Mode]) -> None:
        rest = {
            "owner": self.claim.request.path,
            "run": self.claim.run,
            "since": self.claim.at,
            "action": self.row.action,
        }
        self.connection.execute(_LOCKS, [{"path": path, "mode": mode.value} | rest for path, mode in want.items()])


def numbered(grant: Grant, epoch: int) -> Grant:
    """The grant as it was kept, with the number that its action got."""
    chunks = [chunk.model_copy(update={"epoch": epoch}) for chunk in grant.chunks]
    return grant.model_copy(update={"epoch": epoch, "chunks": chunks})


def _newborn(born: NewObject) -> dict[str, Any]:
    return {
        "path": born.path,
        "kind": born.kind,
        "parent": parent_of(born.path) or "",
        "placement": born.placement,
        "spec": born.spec,
    }


def _cut(born: list[NewObject], most: int) -> Iterable[list[NewObject]]:
    """Runs of objects in one place, none longer than `most`."""
    group: list[NewObject] = []
    for each in born:
        if group and (each.placement != group[0].placement or len(group) == most):
            yield group
            group = []
        group.append(each)
    if group:
        yield group
