"""The leases family's activities: host hand-over, firing due events, waking clocks, reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.fence import Fence, OrderFence, seconds_since_boot
from activities.heartbeat import send_heartbeats
from activities.launching import start_action, wake_clock
from activities.reads import answered_from_store
from activities.retry import UNANSWERED, ProviderRetry
from domain.errors import ProviderError, Rejected, Unavailable, format_one_line
from domain.kinds import InternalProgram
from domain.leases import boundaries, names
from domain.leases.dates import format_date
from domain.leases.messages import (
    CalendarQuery,
    CalendarView,
    DesiredHolding,
    DueEvent,
    DueEvents,
    DueEventsQuery,
    EventFiringResult,
    EventSchedule,
    HandOverOrder,
    HandOverResult,
    HoldingsStore,
    HoldingsToReach,
    HostFailed,
    HostProvider,
    LeasesView,
    LeaseView,
    PrivatePropertiesQuery,
    PrivatePropertiesView,
    WakePoolClock,
)
from domain.leases.tables import BEFORE_END, END, START
from domain.model import Grant, ReadQuery, Request, WorkReport

FOLLOW_SECONDS = 5.0  # seconds for which a firing waits for an action; the clock follows up later ones
FIRST_POLL_PAUSE, LONGEST_POLL_PAUSE = 0.05, 0.4
CONCURRENT_FIRINGS = 60  # actions under way, not counting those slower than SLOW seconds
SLOW_SECONDS = 2.0
QUICK_TRY_SECONDS = 1.0  # seconds for the first try of a hand-over
NO_HOST_MESSAGE = "no host is left for it"
StartAction = Callable[[Request], Awaitable[object]]  # may raise WorkflowAlreadyStartedError
ACTION_OF_EVENT = {START: "start", BEFORE_END: "announce", END: "end"}


class LeaseViews(Protocol):
    """Read-only views of leases and calendars."""

    async def read_lease(self, path: str) -> LeaseView: ...

    async def read_leases(self, prefix: str, after: str, limit: int) -> list[LeaseView]: ...

    async def read_calendar(self, query: CalendarQuery, now: datetime) -> CalendarView: ...

    async def read_private_properties(self, pool: str) -> PrivatePropertiesView: ...


@dataclass(eq=False)
class HostHandover:
    """Hands hosts over to reservations and takes them back.

    An order states what a reservation shall hold, and has a version: a repeated order has one effect, a stale one none.
    So the first try may be a local activity, which adds no events to the history; a slow one becomes a normal activity.
    """

    holdings: HoldingsStore
    hosts: HostProvider
    fence: Fence
    patience: ProviderRetry
    start: StartAction

    @activity.defn(name="lease_hand_over")
    async def hand_over(self, order: HandOverOrder) -> HandOverResult:
        """Brings reservations to what they should hold, with retries. Reads the goal anew before each try."""
        async with self.fence.right_to_order(order.path, order.epoch) as right, asyncio.TaskGroup() as together:
            works = {
                reservation: together.create_task(self._hand_over_reservation(order, reservation, right))
                for reservation in order.reservations
            }
        return HandOverResult(errors={each: error for each, work in works.items() if (error := work.result())})

    @activity.defn(name="lease_try_hand_over")
    async def try_hand_over(self, order: HandOverOrder) -> HandOverResult:
        """Tries a hand-over once, with a short timeout. Returns the reservations that need retries."""
        if not self.hosts.hands_over_at_once:
            return HandOverResult(again=order.reservations)
        async with self.fence.right_to_order(order.path, order.epoch) as right:
            wanted = await self._read_holdings(order, right)
            async with asyncio.TaskGroup() as together:
                works = {
                    holding.reservation: together.create_task(self._try_order(holding, order.want, right))
                    for holding in wanted
                }
        errors = {each: end for each, work in works.items() if (end := work.result())}
        return HandOverResult(errors=errors, again=[each for each, work in works.items() if work.result() is None])

    async def hand_over_inline(self, boundary: boundaries.BoundaryRules, grant: Grant) -> WorkReport | Grant:
        """Does a lease's start or end on hosts inline; returns the grant if a reservation needs retries."""
        work, terms = boundary.list_reservations(grant), boundaries.lease_grant_details(grant)
        on_hosts = all(work.resource_type in boundaries.HOST_RESOURCE_TYPES for work in terms.reservations)
        if terms.contradiction or not on_hosts:
            return grant
        paths = [work.path for work in work]
        handed = await self.try_hand_over(
            HandOverOrder(path=grant.path, epoch=grant.epoch, reservations=paths, want=boundary.want)
        )
        if handed.again:
            return boundaries.switch_to_slow_retries(grant)
        report = boundary.make_report(grant, handed.errors)
        if not handed.errors:
            return report
        why = boundaries.describe_partial_failure(boundary.past_participle, handed.errors, work)
        return report.model_copy(update={"failed": True, "message": why})

    async def _read_holdings(self, order: HandOverOrder, right: OrderFence) -> list[DesiredHolding]:
        """Reads what to hand over; a successful read also proves that the action is open."""
        asked = seconds_since_boot()
        wanted = await self.holdings.read_holdings(order)
        right.accept_read_as_proof(asked)
        return wanted

    async def _try_order(self, holding: DesiredHolding, want: HoldingsToReach, right: OrderFence) -> str | None:
        """Tries one order. Returns its error, an empty string, or None if it should be retried."""
        try:
            async with asyncio.timeout(QUICK_TRY_SECONDS):
                return await self._order_holding(holding, want, right)
        except Rejected as error:
            return format_one_line(error) if want is HoldingsToReach.ALL else None
        except (ProviderError, TimeoutError):
            return None

    async def _hand_over_reservation(self, order: HandOverOrder, reservation: str, right: OrderFence) -> str:
        """Repeats an order until it succeeds or the deadline passes. A rejection is final only when hosts are taken."""
        mine = order.model_copy(update={"reservations": [reservation]})

        async def hand_over() -> str:
            for holding in await self._read_holdings(mine, right):
                return await self._order_holding(holding, order.want, right)
            return ""  # it has no booking any more: there is nothing to hold

        try:
            again = UNANSWERED if order.want is HoldingsToReach.ALL else (ProviderError,)
            return await self.patience.call_with_retry(hand_over, again=again)
        except ProviderError as error:
            return format_one_line(error)

    async def _order_holding(self, holding: DesiredHolding, want: HoldingsToReach, right: OrderFence) -> str:
        """Gives one order. Returns an error if a reservation that should hold hosts has none left."""
        await right.prove()
        try:
            await self.hosts.set_reservation_hosts(holding)
        except HostFailed as failed:
            await self._report_failed_host(failed)
            # The next try reads the holding anew: with another host, if there is one.
            raise Unavailable(f"{failed}; its leases get other hosts") from failed
        if holding.returning:
            await self.holdings.record_returned_hosts(holding)
        return "" if holding.hosts or want is not HoldingsToReach.ALL else NO_HOST_MESSAGE

    async def _report_failed_host(self, failed: HostFailed) -> None:
        """Starts the action by which a host's leases get other hosts, as a person would who saw it fail."""
        request = Request(
            path=failed.host, action="fail", requested_by=InternalProgram.SELF_HEALING, reason=format_one_line(failed)
        )
        with suppress(WorkflowAlreadyStartedError):
            await self.start(request)


class LeaseEventActivities:
    """Starts the actions of due events, under the workflow ID of their object, like any user."""

    def __init__(self, client: Client, schedule: EventSchedule) -> None:
        self._client = client
        self._schedule = schedule

    @activity.defn(name="lease_due_events")
    async def due_events(self, query: DueEventsQuery) -> DueEvents:
        return await self._schedule.list_due_events(query)

    @activity.defn(name="lease_fire_events")
    async def fire_events(self, events: DueEvents) -> EventFiringResult:
        """Fires due events, CONCURRENT_FIRINGS at a time, and waits for each for a few seconds. Returns leases still
        busy.

        This worker carries out most of these actions itself, so more at a time would delay all. Slow ones are not
        counted.
        """
        clock, pause = asyncio.get_running_loop().time, FIRST_POLL_PAUSE
        todo, running, busy = events.due, dict[str, float](), list[str]()  # `running`: lease -> since when
        async with send_heartbeats():
            while todo or running:
                room = CONCURRENT_FIRINGS - sum(clock() - since < SLOW_SECONDS for since in running.values())
                these, todo = todo[:room], todo[room:]
                for due, started in zip(these, await asyncio.gather(*map(self._fire_event, these)), strict=True):
                    if started:
                        running[due.lease] = clock()
                    else:
                        busy.append(due.lease)
                await asyncio.sleep(pause)
                pause = FIRST_POLL_PAUSE if todo else min(pause * 1.5, LONGEST_POLL_PAUSE)
                there = await self._schedule.filter_due_events([due for due in events.due if due.lease in running])
                running = {due.lease: running[due.lease] for due in there}
                for lease in [lease for lease, since in running.items() if clock() - since > FOLLOW_SECONDS]:
                    del running[lease]
                    busy.append(lease)
        return EventFiringResult(busy=busy)

    @activity.defn(name="lease_wake_clock")
    async def wake_clock(self, wake: WakePoolClock) -> None:
        """Wakes a pool's clock, or starts it if it does not run."""
        title = f"the clock of the leases in pool {wake.pool}"
        await wake_clock(self._client, names.LEASE_CLOCK, wake, names.pool_clock_id(wake.pool), title)

    async def _fire_event(self, due: DueEvent) -> bool:
        """Starts an event's action. Returns False if another action runs there; the clock will retry."""
        path = names.event_path(due.lease, due.name) if due.name == BEFORE_END else due.lease
        request = Request(
            path=path,
            action=ACTION_OF_EVENT[due.name],
            spec={"due": format_date(due.due)},
            requested_by=InternalProgram.CLOCK,
            on_behalf_of=due.principal,
            reason=f"{due.name} was due at {format_date(due.due)}",
        )
        try:
            await start_action(self._client, request)
        except WorkflowAlreadyStartedError:
            return False
        return True


class LeaseReadActivities:
    """Reads of leases, as standalone activities."""

    def __init__(self, reads: LeaseViews) -> None:
        self._reads = reads

    @answered_from_store
    @activity.defn
    async def read_lease(self, query: ReadQuery) -> LeaseView:
        return await self._reads.read_lease(query.path)

    @answered_from_store
    @activity.defn
    async def read_leases(self, query: ReadQuery) -> LeasesView:
        return LeasesView(leases=await self._reads.read_leases(query.path, query.after, query.limit))

    @answered_from_store
    @activity.defn
    async def read_calendar(self, query: CalendarQuery) -> CalendarView:
        # Temporal's clock where a worker answers; a gateway that reads the store itself has only its own.
        now = activity.info().scheduled_time.astimezone(UTC) if activity.in_activity() else datetime.now(UTC)
        return await self._reads.read_calendar(query, now)

    @answered_from_store
    @activity.defn
    async def read_private_properties(self, query: PrivatePropertiesQuery) -> PrivatePropertiesView:
        return await self._reads.read_private_properties(query.pool)
