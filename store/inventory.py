"""The inventory as the activities use it: every method one transaction, run in a thread."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime
from functools import partial

from domain.healing import HealReport, Leftover, Pruned, Suspect
from domain.invariants import AuditSnapshot
from domain.locks import HeldLock
from domain.model import (
    Admission,
    Chunk,
    Claim,
    Ending,
    HistoryLine,
    Holder,
    Landing,
    ObjectView,
    Outcome,
    QueueCommand,
    Step,
    Stepped,
    Target,
    TreeView,
)
from store import audit, begin, finish, healing, land, queries, recovery, retention, steps, waitqueue
from store.engine import Database
from store.families import FAMILIES
from store.hooks import HOOKS

HOOKS.update(FAMILIES)


class SqlInventory:
    """`domain.ports.Inventory` on SQLite or PostgreSQL."""

    def __init__(self, database: Database, allowed: begin.AccessCheck = begin.allow_everybody) -> None:
        self.database = database
        self.allowed = allowed

    async def begin(self, claim: Claim) -> Admission:
        return await self.database.run(partial(begin.begin, claim=claim, allowed=self.allowed))

    async def check(self, claim: Claim) -> Admission:
        return await self.database.run(partial(begin.check, claim=claim, allowed=self.allowed))

    async def advance(self, step: Step) -> Stepped:
        return await self.database.run(partial(steps.apply_step, step=step))

    async def targets(self, chunk: Chunk) -> list[Target]:
        return await self.database.run(partial(land.targets, chunk=chunk))

    async def is_open(self, path: str, epoch: int) -> bool:
        return await self.database.run(partial(queries.is_open, path=path, epoch=epoch))

    async def land(self, chunk: Chunk, landed: Sequence[Landing], at: datetime) -> int:
        return await self.database.run(partial(land.land, chunk=chunk, landings=landed, at=at))

    async def finish(self, ending: Ending) -> Outcome:
        return await self.database.run(partial(finish.finish, ending=ending))

    async def still_held(self, holders: Sequence[Holder]) -> list[Holder]:
        return await self.database.run(partial(waitqueue.still_held, holders=holders))

    async def close_queue(self, order: QueueCommand) -> list[Holder]:
        return await self.database.run(partial(waitqueue.close_queue, order=order))

    async def open_queue(self, order: QueueCommand) -> None:
        await self.database.run(partial(waitqueue.open_queue, order=order))

    async def suspects(self, before: datetime) -> list[Suspect]:
        return await self.database.run(partial(healing.suspects, before=before))

    async def heal(self, suspect: Suspect, at: datetime, message: str) -> bool:
        return await self.database.run(partial(healing.heal, suspect=suspect, at=at, message=message))

    async def leftovers(self) -> list[Leftover]:
        return await self.database.run(healing.leftovers)

    async def prune(self, before: datetime, after: int, busy: Set[str], export: retention.Export) -> Pruned:
        work = partial(retention.prune, before=before, after=after, busy=busy, export=export)
        return await self.database.run(work)

    async def save_report(self, report: HealReport) -> HealReport:
        return await self.database.run(partial(healing.keep_report, report=report))

    async def reports(self, limit: int) -> list[HealReport]:
        return await self.database.run(partial(healing.read_reports, limit=limit))

    async def abandon(self, owner: str, run: str, at: datetime, message: str) -> int:
        return await self.database.run(partial(recovery.abandon, owner=owner, run=run, at=at, message=message))

    async def get(self, path: str, members: bool = False) -> ObjectView:
        return await self.database.run(partial(queries.get, path=path, members=members))

    async def tree(self, path: str, troubles: int) -> TreeView:
        return await self.database.run(partial(queries.tree, path=path, troubles=troubles))

    async def outcome(self, run: str) -> Outcome:
        return await self.database.run(partial(queries.outcome, run=run))

    async def list_objects(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> list[ObjectView]:
        return await self.database.run(
            partial(queries.list_objects, kind=kind, prefix=prefix, after=after, limit=limit)
        )

    async def history(self, path: str, limit: int = 100) -> list[HistoryLine]:
        return await self.database.run(partial(queries.read_history, path=path, limit=limit))

    async def holds(self, prefix: str = "") -> list[HeldLock]:
        return await self.database.run(partial(queries.holds, prefix=prefix))

    async def kept(self, prefix: str) -> AuditSnapshot:
        return await self.database.read(partial(audit.check_kept, prefix=prefix))

    async def begun_since(self, epoch: int) -> list[str]:
        return await self.database.run(partial(audit.begun_since, epoch=epoch))
