"""Verifies all invariants of a live system: the inventory, Temporal, and the providers' records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio import activity
from temporalio.client import Client

from activities.busypaths import BusyPaths
from activities.companions import CompanionReconciler
from activities.heartbeat import send_heartbeats
from activities.runs import ALIVE_STATES, call_concurrently, read_run_state
from domain import registry
from domain.invariants import (
    AuditSnapshot,
    InvariantViolation,
    VerificationReport,
    find_missing_runs,
    find_unowned_transitions,
)
from domain.model import ReadQuery
from domain.paths import is_at_or_below
from domain.ports import Inventory

AuditFunction = Callable[
    [str], Awaitable[tuple[list[InvariantViolation], int]]
]  # path -> violations at or below it, and the number of objects checked

MAX_LISTED = 200


@dataclass(eq=False)
class VerifyActivities:
    """The activity behind `starter verify`."""

    client: Client
    inventory: Inventory
    audits: Sequence[AuditFunction]
    companions: CompanionReconciler

    @activity.defn
    async def verify(self, query: ReadQuery) -> VerificationReport:
        """Checks everything at or below a path. Findings about objects of open actions are left out."""
        async with send_heartbeats():
            snapshot = await self.inventory.check_store_invariants(query.path)
            dead = await self._find_dead_runs(snapshot)
            books = [await audit(query.path) for audit in self.audits]
            late = await self._find_late_companions(query.path)
            begun = await self.inventory.list_paths_begun_since(snapshot.last)
        alive = [record for record in snapshot.open if record.run not in dead]
        runs = {record.run for record in alive} | {run for _, _, run in snapshot.held if run not in dead}
        here = [record for record in snapshot.open if not query.path or is_at_or_below(record.path, query.path)]
        findings = [
            *find_missing_runs(here, runs),
            *find_unowned_transitions(snapshot.under_way, snapshot.held, {record.epoch for record in alive}, runs),
            *snapshot.findings,
            *(finding for wrong, _ in books for finding in wrong),
            *late,
        ]
        busy = BusyPaths([*(record.path for record in alive), *begun])
        sure = [finding for finding in findings if not busy.is_busy(finding.path)]
        looked_at = {
            "actions": snapshot.actions,
            "objects": snapshot.objects,
            "lines": snapshot.lines,
            "locks": len(snapshot.held),
        }
        looked_at["outside"] = sum(size for _, size in books)
        more = max(0, len(sure) - MAX_LISTED) + snapshot.more
        return VerificationReport(findings=limit_findings(sure), more=more, looked_at=looked_at)

    async def _find_late_companions(self, prefix: str) -> list[InvariantViolation]:
        """Checks I12: missing companions and overdue timers."""
        told = "its {} does not run ({}); start it with: starter heal"
        missing = [
            InvariantViolation("I12", companion.path, told.format(companion.title, companion.id))
            for companion in await self.companions.list_missing_companions()
            if not prefix or is_at_or_below(companion.path, prefix)
        ]
        return missing + await self.companions.list_overdue_violations(prefix, datetime.now(UTC))

    async def _find_dead_runs(self, kept: AuditSnapshot) -> set[str]:
        """Returns closed runs whose action is still open or whose lock is still held."""
        owners = {record.run: registry.workflow_id_of(record.path, record.action) for record in kept.open}
        owners |= {run: owner for _, owner, run in kept.held}
        states = await call_concurrently(lambda run: read_run_state(self.client, owners[run], run), owners)
        closed = {run for run, state in zip(owners, states, strict=True) if state not in ALIVE_STATES}
        if not closed:
            return closed
        return closed & {suspect.run for suspect in await self.inventory.list_stuck_items(datetime.now(UTC))}


def limit_findings(findings: Sequence[InvariantViolation]) -> list[InvariantViolation]:
    """Returns at most MAX_LISTED findings, in their order: of every invariant some, so that many of one hide none."""
    rank: Counter[str] = Counter()
    ranked: list[tuple[int, int]] = []
    for place, finding in enumerate(findings):
        ranked.append((rank[finding.invariant], place))
        rank[finding.invariant] += 1
    return [findings[place] for place in sorted(place for _, place in sorted(ranked)[:MAX_LISTED])]
