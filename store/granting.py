"""Everything that an admitted action writes at its beginning: status, epoch, history, locks, and its grant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from domain import registry
from domain.limits import CHUNK_VMS
from domain.locks import wanted
from domain.machine import NONE, Actor, Row, Ruling
from domain.model import Chunk, Claim, Grant, NewObject
from domain.paths import parent_of
from store.recording import record
from store.schema import actions, locks, objects


@dataclass(frozen=True)
class Plan:
    """What was decided: the object's own row, and the row for the members in each status that allows it."""

    row: Row | None  # None: there is nothing to do
    came_from: str
    members: dict[str, Row]
    skipped: dict[str, int]


class Granting:
    """Everything that an admitted action writes at its beginning."""

    def __init__(self, connection: sa.Connection, claim: Claim, kind: registry.Kind, plan: Plan) -> None:
        assert plan.row, "nothing to do is granted without writing anything"
        self.connection, self.request, self.run, self.at = connection, claim.request, claim.run, claim.at
        self.kind, self.plan, self.row = kind, plan, plan.row
        self.epoch = self._action(claim)

    def write(self, exists: bool, births: Iterable[NewObject]) -> Grant:
        path = self.request.path
        if not exists:
            self._insert([_newborn(path, self.kind.name, "", self.request.spec or {})], self.row)
            member = registry.kind(self.kind.member).table if self.kind.member else None
            if member and (row := member.judge(NONE, self.request.action).row):
                self._insert([_newborn(b.path, b.kind, b.placement, b.spec) for b in births], row)
        else:
            self._update(objects.c.path == path, self.row, self.plan.came_from)
            for status, row in self.plan.members.items():
                self._update((objects.c.parent == path) & (objects.c.kind == self.kind.member), row, status)
        record(self.connection, self._mine(), self.at, Actor.USER, self.request.action)
        self._lock()
        return self._grant()

    def _action(self, claim: Claim) -> int:
        request = claim.request
        line = {
            "run": claim.run,
            "path": request.path,
            "action": request.action,
            "force": request.force,
            "requested_by": request.requested_by,
            "reason": request.reason,
            "request_id": request.request_id,
            "began_at": claim.at,
            "grant": {},
        }
        return int(self.connection.execute(sa.insert(actions).values(line).returning(actions.c.epoch)).scalar_one())

    def _changes(self, row: Row, came_from: str) -> dict[str, Any]:
        return {
            "status": row.during,
            "previous_status": came_from,
            "target_action": self.request.action,
            "target_status": row.success(came_from),
            "epoch": self.epoch,
            "changed_at": self.at,
            "error": "",
        }

    def _insert(self, newborns: list[dict[str, Any]], row: Row) -> None:
        fresh = self._changes(row, NONE) | {"created_at": self.at, "info": {"generation": self.epoch}}
        self.connection.execute(sa.insert(objects), [newborn | fresh for newborn in newborns])

    def _update(self, which: sa.ColumnElement[bool], row: Row, came_from: str) -> None:
        """Compare and set: only what is still in the status that was judged."""
        self.connection.execute(
            sa.update(objects).where(which, objects.c.status == came_from).values(self._changes(row, came_from))
        )

    def _mine(self) -> sa.ColumnElement[bool]:
        path = self.request.path
        return ((objects.c.path == path) | (objects.c.parent == path)) & (objects.c.epoch == self.epoch)

    def _lock(self) -> None:
        self.connection.execute(
            sa.insert(locks).values(
                [
                    {
                        "path": path,
                        "owner": self.request.path,
                        "mode": mode.value,
                        "run": self.run,
                        "action": self.request.action,
                        "since": self.at,
                    }
                    for path, mode in wanted([self.request.path]).items()
                ]
            )
        )

    def _grant(self) -> Grant:
        chunks = self._chunks()
        grant = Grant(
            epoch=self.epoch,
            path=self.request.path,
            action=self.request.action,
            ruling=Ruling.GO,
            came_from=self.plan.came_from,
            during=str(self.row.during),
            then=self.row.success(self.plan.came_from),
            chunks=chunks,
            targets=sum(chunk.count for chunk in chunks),
            skipped=self.plan.skipped,
        )
        kept = grant.model_dump(mode="json")
        self.connection.execute(sa.update(actions).where(actions.c.epoch == self.epoch).values(grant=kept))
        return grant

    def _chunks(self) -> list[Chunk]:
        """The targets, grouped by place and cut into ranges of paths, counted by the database."""
        numbered = (
            sa.select(
                objects.c.placement,
                objects.c.path,
                sa.func.row_number().over(partition_by=objects.c.placement, order_by=objects.c.path).label("n"),
            )
            .where(self._mine(), objects.c.placement != "")
            .subquery()
        )
        part = (numbered.c.n - 1) // sa.literal_column(str(CHUNK_VMS), sa.Integer)
        ranges = (
            sa.select(numbered.c.placement, sa.func.min(numbered.c.path), sa.func.max(numbered.c.path), sa.func.count())
            .group_by(numbered.c.placement, part)
            .order_by(numbered.c.placement, part)
        )
        return [
            Chunk(epoch=self.epoch, placement=place, action=self.request.action, first=first, last=last, count=count)
            for place, first, last, count in self.connection.execute(ranges)
        ]


def _newborn(path: str, kind: str, placement: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"path": path, "kind": kind, "parent": parent_of(path) or "", "placement": placement, "spec": spec}
