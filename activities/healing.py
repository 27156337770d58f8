"""Self-healing: asks Temporal whether the runs of open actions still exist, and abandons dead actions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from activities.companions import CompanionReconciler
from activities.heartbeat import send_heartbeats
from activities.leftovers import FindLeftovers, LeftoverCleaner
from activities.lostruns import LostRunCanceller
from activities.measuring import add_to_counter
from activities.reads import answered_from_store
from activities.retention import RetentionSweep
from activities.runs import ALIVE_STATES, CONCURRENT_CALLS, RunState, read_run_state
from domain import metrics, registry
from domain.errors import RatchetError, format_one_line
from domain.healing import (
    HealEntry,
    HealFinding,
    HealReport,
    HealReports,
    HealReportsQuery,
    StuckItem,
    SweepOptions,
    action_limit_seconds,
)
from domain.model import AT_WRITE_TIME, LockHolder, ObjectView
from domain.paths import kind_of
from domain.ports import Inventory
from domain.statetable import NONE, RESTORED, describe_recovery
from domain.waitqueue import LockHolders

HOLDERS_TIMEOUT = 7.0  # seconds to ask about all holders; less than the activity's timeout
CUT_OFF_MESSAGE = f"the action was cut off; {RESTORED}, without asking the cloud"
ABANDONED_MESSAGE = f"abandoned: its workflow was not running; {RESTORED}"
CAME_TO_REST_MESSAGE = "it came to rest while the sweep looked; nothing was changed"
DEAD_STATES = (RunState.CLOSED, RunState.UNKNOWN)

InspectObject = Callable[[ObjectView], Awaitable[str]]  # returns an object's state at its provider


@dataclass(eq=False)
class HealingActivities:
    """Sweeps, and checks of lock holders. `inspectors` report an object's state at its provider, by kind."""

    client: Client
    inventory: Inventory
    companions: CompanionReconciler
    limits: Mapping[str, float] = field(default_factory=dict)
    inspectors: Mapping[str, InspectObject] = field(default_factory=dict)
    searches: Sequence[FindLeftovers] = ()
    retention: RetentionSweep | None = None
    order_life: float = 0.0

    @activity.defn
    async def heal_holders(self, suspects: LockHolders) -> int:
        """Abandons the actions of lock holders whose run is closed. Returns how many.

        A holder for which Temporal did not answer in time counts as alive, and is logged.
        """
        states = await self._read_run_states(suspects.holders)
        dead = _filter_dead_holders(suspects.holders, states)
        for holder in dead:
            await self.inventory.abandon_run(holder.owner, holder.run, AT_WRITE_TIME, CUT_OFF_MESSAGE)
        if unasked := [holder.owner for holder, state in zip(suspects.holders, states, strict=True) if state is None]:
            activity.logger.warning("Temporal did not say whether these run: %s", ", ".join(unasked))
            add_to_counter(metrics.HEALS, len(unasked), result="unasked")
        add_to_counter(metrics.HEALS, len(dead), result="abandoned")
        add_to_counter(metrics.HEALS, len(suspects.holders) - len(dead) - len(unasked), result="alive")
        return len(dead)

    async def find_dead_holders(self, holders: Sequence[LockHolder]) -> list[LockHolder]:
        """Returns the holders that `heal_holders` would abandon, for a dry run."""
        return _filter_dead_holders(holders, await self._read_run_states(holders))

    @activity.defn
    async def sweep(self, order: SweepOptions) -> HealReport:
        """Runs one sweep: checks everything under way, leftovers, companions and retention. Safe to repeat."""
        at = order.at or datetime.now(UTC)
        cleaner = LeftoverCleaner(self.client, self.inventory, self.limits, self.searches, self.order_life)
        async with send_heartbeats():
            left = await cleaner.list_due_leftovers(order, at)  # first: what is restored below is in its grace period
            under_way = await self.inventory.list_stuck_items(at)
            room = asyncio.Semaphore(CONCURRENT_CALLS)
            looks = await asyncio.gather(
                *(self._heal_if_dead(suspect, order, at, room) for suspect in under_way),
                *(cleaner.remove_leftover(leftover, order.dry_run, room) for leftover in left),
            )
            ended = await LostRunCanceller(self.client, self.inventory).cancel_lost_runs(at, order.dry_run)
            lost = await (
                self.companions.list_missing_companions()
                if order.dry_run
                else self.companions.start_missing_companions(at)
            )
            if not order.dry_run:
                await self.inventory.forget_expired(at)
            pruned = await self.retention.prune_old_actions(at, order.dry_run) if self.retention else None
        started = HealFinding.WOULD_START if order.dry_run else HealFinding.STARTED
        found = [*(look for look in looks if look), *ended] + [
            HealEntry(path=companion.id, action=companion.title, since=at, status="missing", finding=started)
            for companion in lost
        ]
        counts, looked = Counter(entry.finding.value for entry in found), len(looks)
        report = HealReport(
            at=at, dry_run=order.dry_run, looked=looked, counts=dict(counts), found=found, pruned=pruned
        )
        return await self.inventory.save_heal_report(report)

    @answered_from_store
    @activity.defn
    async def read_reports(self, query: HealReportsQuery) -> HealReports:
        """Returns the reports of earlier sweeps, newest first."""
        return HealReports(reports=await self.inventory.read_reports(query.limit))

    async def _heal_if_dead(
        self, suspect: StuckItem, order: SweepOptions, at: datetime, room: asyncio.Semaphore
    ) -> HealEntry | None:
        """Heals a suspect whose run is closed, or unknown and late. Returns None if nothing is wrong with it."""
        limits = self.limits if order.limits is None else order.limits
        late = (at - suspect.since).total_seconds() >= action_limit_seconds(limits, suspect.path, suspect.action)
        async with room:
            state = await read_run_state(self.client, suspect.owner, suspect.run) if suspect.run else RunState.UNKNOWN
            if state in ALIVE_STATES:
                return _report_living_action(suspect, state) if late else None
            if state is RunState.UNKNOWN and not late:
                return None
            if order.dry_run:
                return _make_report_entry(suspect, HealFinding.WOULD_HEAL, message="its workflow is not running")
            return await self._heal_suspect(suspect, at)

    async def _heal_suspect(self, suspect: StuckItem, at: datetime) -> HealEntry:
        """Heals, and builds the report entry with the object's status now and its state at the provider.

        An object that was never created has no record any more; its state at the provider is reported all the same.
        """
        before = await self._read_object(suspect)
        healed = await self.inventory.heal_stuck_item(suspect, at, ABANDONED_MESSAGE)
        now = await self._read_object(suspect)
        outside = await self._provider_state(view) if (view := now or before) else ""
        finding, message = HealFinding.ENDED, CAME_TO_REST_MESSAGE
        if healed:
            finding, message = HealFinding.HEALED, ABANDONED_MESSAGE
            if before and now and before.target_action != NONE:
                message = describe_recovery(message, before.previous_status, now.phase)
        return _make_report_entry(suspect, finding, to=now.status if now else NONE, message=message, provider=outside)

    async def _read_object(self, suspect: StuckItem) -> ObjectView | None:
        try:
            return await self.inventory.read_object(suspect.path)
        except RatchetError:  # there is none
            return None

    async def _provider_state(self, view: ObjectView) -> str:
        inspect = self.inspectors.get(view.kind)
        if not inspect:
            return ""
        try:
            return await inspect(view)
        except RatchetError as error:
            return f"cannot be asked: {format_one_line(error, 200)}"

    async def _read_run_states(self, holders: Sequence[LockHolder]) -> list[RunState | None]:
        """Asks Temporal for the state of each holder's run; None if it did not answer in time."""
        room = asyncio.Semaphore(CONCURRENT_CALLS)

        async def ask(holder: LockHolder) -> RunState | None:
            async with room:
                try:
                    return await read_run_state(self.client, holder.owner, holder.run)
                except RPCError:
                    return None

        asked = [asyncio.ensure_future(ask(holder)) for holder in holders]
        await asyncio.wait(asked, timeout=HOLDERS_TIMEOUT)
        for question in asked:
            question.cancel()
        return [question.result() if question.done() else None for question in asked]


def _filter_dead_holders(holders: Sequence[LockHolder], states: Sequence[RunState | None]) -> list[LockHolder]:
    return [holder for holder, state in zip(holders, states, strict=True) if state in DEAD_STATES]


def _report_living_action(suspect: StuckItem, state: RunState) -> HealEntry:
    """Reports an action that is over its limit and alive: paused, waiting for a decision, or slow. It is left alone."""
    if state is RunState.PAUSED:
        return _make_report_entry(suspect, HealFinding.PAUSED, message="its workflow is paused in Temporal: left alone")
    if suspect.status in registry.find_kind(kind_of(suspect.path)).waiting_statuses:
        return _make_report_entry(suspect, HealFinding.WAITING, message="it waits for a decision: left alone")
    return _make_report_entry(suspect, HealFinding.SLOW, message="its workflow runs: left alone")


def _make_report_entry(
    suspect: StuckItem, finding: HealFinding, to: str = "", message: str = "", provider: str = ""
) -> HealEntry:
    told = suspect.model_dump(include={"path", "action", "since", "status", "run"})
    return HealEntry(**told, finding=finding, to=to, message=message, provider=provider)
