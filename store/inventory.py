"""The inventory as the activities use it: every method one transaction, run in a thread."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime
from functools import partial

from domain.healing import HealReport, Leftover, Pruned, Suspect
from domain.invariants import Kept
from domain.locks import Hold
from domain.model import (
    Admission,
    Chunk,
    Claim,
    Ending,
    HistoryLine,
    Holder,
    Landing,
    LineOrder,
    ObjectView,
    Outcome,
    Step,
    Stepped,
    Target,
    TreeView,
)
from store import (
    claims,
    endings,
    facts,
    healing,
    landings,
    lines,
    machines,  # noqa: F401  its riders
    reading,
    retention,
    steps,
    takeover,
)
from store.engine import Database
from store.families import FAMILIES
from store.riders import RIDERS

RIDERS.update(FAMILIES)


class SqlInventory:
    """`domain.ports.Inventory` on SQLite or PostgreSQL."""

    def __init__(self, database: Database, allowed: claims.Allowed = claims.anybody) -> None:
        self.database = database
        self.allowed = allowed

    async def begin(self, claim: Claim) -> Admission:
        return await self.database.run(partial(claims.begin, claim=claim, allowed=self.allowed))

    async def check(self, claim: Claim) -> Admission:
        return await self.database.run(partial(claims.check, claim=claim, allowed=self.allowed))

    async def advance(self, step: Step) -> Stepped:
        return await self.database.run(partial(steps.take, step=step))

    async def targets(self, chunk: Chunk) -> list[Target]:
        return await self.database.run(partial(landings.targets, chunk=chunk))

    async def is_open(self, path: str, epoch: int) -> bool:
        return await self.database.run(partial(reading.is_open, path=path, epoch=epoch))

    async def land(self, chunk: Chunk, landed: Sequence[Landing], at: datetime) -> int:
        return await self.database.run(partial(landings.land, chunk=chunk, landings=landed, at=at))

    async def finish(self, ending: Ending) -> Outcome:
        return await self.database.run(partial(endings.finish, ending=ending))

    async def still_held(self, holders: Sequence[Holder]) -> list[Holder]:
        return await self.database.run(partial(lines.still_held, holders=holders))

    async def close_line(self, order: LineOrder) -> list[Holder]:
        return await self.database.run(partial(lines.close, order=order))

    async def open_line(self, order: LineOrder) -> None:
        await self.database.run(partial(lines.open_again, order=order))

    async def suspects(self, before: datetime) -> list[Suspect]:
        return await self.database.run(partial(healing.suspects, before=before))

    async def heal(self, suspect: Suspect, at: datetime, message: str) -> bool:
        return await self.database.run(partial(healing.heal, suspect=suspect, at=at, message=message))

    async def leftovers(self) -> list[Leftover]:
        return await self.database.run(healing.leftovers)

    async def prune(self, before: datetime, after: int, busy: Set[str], export: retention.Export) -> Pruned:
        work = partial(retention.prune, before=before, after=after, busy=busy, export=export)
        return await self.database.run(work)

    async def keep_report(self, report: HealReport) -> HealReport:
        return await self.database.run(partial(healing.keep_report, report=report))

    async def reports(self, limit: int) -> list[HealReport]:
        return await self.database.run(partial(healing.read_reports, limit=limit))

    async def bury(self, owner: str, run: str, at: datetime, message: str) -> int:
        return await self.database.run(partial(takeover.bury, owner=owner, run=run, at=at, message=message))

    async def get(self, path: str, members: bool = False) -> ObjectView:
        return await self.database.run(partial(reading.get, path=path, members=members))

    async def tree(self, path: str, troubles: int) -> TreeView:
        return await self.database.run(partial(reading.tree, path=path, troubles=troubles))

    async def outcome(self, run: str) -> Outcome:
        return await self.database.run(partial(reading.outcome, run=run))

    async def list_objects(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> list[ObjectView]:
        return await self.database.run(
            partial(reading.list_objects, kind=kind, prefix=prefix, after=after, limit=limit)
        )

    async def history(self, path: str, limit: int = 100) -> list[HistoryLine]:
        return await self.database.run(partial(reading.read_history, path=path, limit=limit))

    async def holds(self, prefix: str = "") -> list[Hold]:
        return await self.database.run(partial(reading.holds, prefix=prefix))

    async def kept(self, prefix: str) -> Kept:
        return await self.database.read(partial(facts.kept, prefix=prefix))

    async def begun_since(self, epoch: int) -> list[str]:
        return await self.database.run(partial(facts.begun_since, epoch=epoch))
