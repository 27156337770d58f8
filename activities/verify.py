"""Verifies all invariants of a live system: the inventory, Temporal, and the providers' records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from temporalio import activity
from temporalio.client import Client

from activities.busy import BusyPaths
from activities.companions import Companions
from activities.heartbeat import heartbeat
from activities.runs import RunState, state_of
from domain import registry
from domain.invariants import AuditSnapshot, accepted_is_finished, rest_is_stable
from domain.model import BrokenPromise, Query, Verification
from domain.ports import Inventory

Audit = Callable[
    [str], Awaitable[tuple[list[BrokenPromise], int]]
]  # path -> violations at or below it, and the number of objects checked

LISTED = 200
AT_ONCE = 20  # concurrent calls to Temporal


class VerifyActivities:
    """The activity behind `starter verify`."""

    def __init__(
        self, client: Client, inventory: Inventory, audits: Sequence[Audit], companions: Companions | None = None
    ) -> None:
        self._client = client
        self._inventory = inventory
        self._audits = audits
        self._companions = companions or Companions(client)

    @activity.defn
    async def verify(self, query: Query) -> Verification:
        """Checks everything at or below a path. Findings about objects of open actions are left out."""
        async with heartbeat():
            kept = await self._inventory.kept(query.path)
            dead = await self._dead(kept)
            books = [await audit(query.path) for audit in self._audits]
            late = await self._late(query.path)
            begun = await self._inventory.begun_since(kept.last)
        alive = [each for each in kept.open if each.run not in dead]
        runs = {each.run for each in alive} | {run for _, _, run in kept.held if run not in dead}
        here = [each for each in kept.open if not query.path or _is_below(query.path, each.path)]
        findings = [
            *accepted_is_finished(here, runs),
            *rest_is_stable(kept.under_way, kept.held, {each.epoch for each in alive}, runs),
            *kept.findings,
            *(finding for wrong, _ in books for finding in wrong),
            *late,
        ]
        busy = BusyPaths([*(each.path for each in alive), *begun])
        sure = [finding for finding in findings if not busy.about(finding.path)]
        looked_at = {"actions": kept.actions, "objects": kept.objects, "lines": kept.lines, "locks": len(kept.held)}
        looked_at["outside"] = sum(size for _, size in books)
        more = max(0, len(sure) - LISTED) + kept.more
        return Verification(findings=sure[:LISTED], more=more, looked_at=looked_at)

    async def _late(self, prefix: str) -> list[BrokenPromise]:
        """Checks I12: missing companions and overdue timers."""
        told = "its {} does not run ({}); start it with: starter heal"
        missing = [
            BrokenPromise("I12", each.path, told.format(each.title, each.id))
            for each in await self._companions.missing()
            if not prefix or _is_below(prefix, each.path)
        ]
        return missing + await self._companions.overdue(prefix, datetime.now(UTC))

    async def _dead(self, kept: AuditSnapshot) -> set[str]:
        """Returns closed runs whose action is still open or whose lock is still held."""
        room = asyncio.Semaphore(AT_ONCE)

        async def is_open(owner: str, run: str) -> bool:
            async with room:
                return await state_of(self._client, owner, run) is RunState.OPEN

        owners = {each.run: registry.owner_of(each.path, each.action) for each in kept.open}
        owners |= {run: owner for _, owner, run in kept.held}
        answers = await asyncio.gather(*(is_open(owner, run) for run, owner in owners.items()))
        closed = {run for run, alive in zip(owners, answers, strict=True) if not alive}
        if not closed:
            return closed
        return closed & {each.run for each in await self._inventory.suspects(datetime.now(UTC))}


def _is_below(prefix: str, path: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}:")
