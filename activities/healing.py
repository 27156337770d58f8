"""What dead actions left behind: ask Temporal whether an owner's run is open, and put right what nobody owns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.leftovers import Leftovers
from activities.measuring import count
from activities.pulse import pulse
from domain import metrics, wire
from domain.errors import RatchetError, brief
from domain.healing import (
    Finding,
    Found,
    HealReport,
    HealReports,
    ReportQuery,
    Suspect,
    Sweep,
    limit_for,
    shortest,
)
from domain.machine import NONE
from domain.model import Holders, ObjectView
from domain.ports import Inventory

AT_ONCE = 20  # questions to Temporal
CUT_OFF = "the action was cut off; back to what it was, the cloud was not asked"
ABANDONED = "abandoned: its workflow was not running; back to what it was before"

Inspect = Callable[[ObjectView], Awaitable[str]]  # what the world outside says that an object is now


class Healing:
    """`inspectors` ask a family's provider, by kind; what they say is reported, and changes nothing."""

    def __init__(
        self,
        client: Client,
        inventory: Inventory,
        limits: Mapping[str, float] | None = None,
        inspectors: Mapping[str, Inspect] | None = None,
    ) -> None:
        self._client = client
        self._inventory = inventory
        self._limits = limits or {}
        self._inspectors = inspectors or {}
        self._leftovers = Leftovers(client, inventory, self._limits)

    @activity.defn(name=wire.HEAL_HOLDERS)
    async def heal_holders(self, suspects: Holders) -> int:
        """Bury those of the holders whose run is closed. Returns how many those were."""
        dead = [holder for holder in suspects.holders if not await self._alive(holder.owner, holder.run)]
        for holder in dead:
            await self._inventory.bury(holder.owner, holder.run, datetime.now(UTC), CUT_OFF)
        count(metrics.HEALS, len(dead), result="buried")
        count(metrics.HEALS, len(suspects.holders) - len(dead), result="alive")
        return len(dead)

    @activity.defn(name=wire.SWEEP)
    async def sweep(self, order: Sweep) -> HealReport:
        """Look at everything that is over its limit. A second try finds what the first one left."""
        at = order.at or datetime.now(UTC)
        limits = self._limits if order.limits is None else order.limits
        async with pulse():
            left = await self._leftovers.due(order, at)  # first: what is brought back now has its time of grace yet
            oldest = await self._inventory.suspects(at - timedelta(seconds=shortest(limits)))
            late = [each for each in oldest if _age(each, at) >= limit_for(limits, each.path, each.action)]
            room = asyncio.Semaphore(AT_ONCE)
            found = await asyncio.gather(
                *(self._look(each, order.dry_run, at, room) for each in late),
                *(self._leftovers.clear(each, order.dry_run, room) for each in left),
            )
        counts, looked = Counter(each.finding.value for each in found), len(oldest) + len(left)
        report = HealReport(at=at, dry_run=order.dry_run, looked=looked, counts=dict(counts), found=list(found))
        return await self._inventory.keep_report(report)

    @activity.defn(name=wire.READ_REPORTS)
    async def read_reports(self, query: ReportQuery) -> HealReports:
        """What earlier sweeps found, the newest first."""
        return HealReports(reports=await self._inventory.reports(query.limit))

    async def _look(self, suspect: Suspect, dry_run: bool, at: datetime, room: asyncio.Semaphore) -> Found:
        async with room:
            if suspect.run and await self._alive(suspect.owner, suspect.run):
                return _found(suspect, Finding.SLOW, message="its workflow runs: left alone")
            if dry_run:
                return _found(suspect, Finding.WOULD_HEAL, message="its workflow is not running")
            return await self._heal(suspect, at)

    async def _heal(self, suspect: Suspect, at: datetime) -> Found:
        before = await self._seen(suspect)
        if suspect.run:
            healed = await self._inventory.bury(suspect.owner, suspect.run, at, ABANDONED)
        else:
            healed = await self._inventory.recover(suspect, at, ABANDONED)
        came_to_rest = not healed and not suspect.run
        return await self._told(suspect, Finding.ENDED if came_to_rest else Finding.HEALED, before)

    async def _told(self, suspect: Suspect, finding: Finding, before: ObjectView | None) -> Found:
        """The finding, with what the object is now and, where somebody can be asked, what it is outside.

        Of one that never came into being the record is gone again: what may be left outside is told all the same.
        """
        now = await self._seen(suspect)
        outside = await self._outside(found) if (found := now or before) else ""
        return _found(suspect, finding, to=now.status if now else NONE, message=ABANDONED, provider=outside)

    async def _seen(self, suspect: Suspect) -> ObjectView | None:
        try:
            return await self._inventory.get(suspect.path)
        except RatchetError:  # there is none
            return None

    async def _outside(self, view: ObjectView) -> str:
        inspect = self._inspectors.get(view.kind)
        if not inspect:
            return ""
        try:
            return await inspect(view)
        except RatchetError as error:
            return f"cannot be asked: {brief(error, 200)}"

    async def _alive(self, owner: str, run: str) -> bool:
        """Is the run open? One that was continued is as alive as what it was continued as."""
        try:
            described = await self._client.get_workflow_handle(owner, run_id=run).describe()
            if described.status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
                described = await self._client.get_workflow_handle(owner).describe()
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return False
            raise
        return described.status is WorkflowExecutionStatus.RUNNING


def _age(suspect: Suspect, at: datetime) -> float:
    return (at - suspect.since).total_seconds()


def _found(suspect: Suspect, finding: Finding, to: str = "", message: str = "", provider: str = "") -> Found:
    return Found(
        path=suspect.path,
        action=suspect.action,
        since=suspect.since,
        status=suspect.status,
        finding=finding,
        to=to,
        run=suspect.run,
        message=message,
        provider=provider,
    )
