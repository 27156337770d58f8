"""The leases family's activities: host hand-over, firing due events, waking clocks, reads."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.fence import Fence, OrderRight, boot_time
from activities.heartbeat import heartbeat
from activities.launching import launch, wake_clock
from activities.reads import reads_store, refusal_as_answer
from activities.retry import UNANSWERED, ProviderRetry
from domain.errors import ProviderError, Rejected, one_line
from domain.kinds import Program
from domain.leases import ends, names
from domain.leases.dates import stamp
from domain.leases.messages import (
    CalendarQuery,
    CalendarView,
    DueEvent,
    DueList,
    DueQuery,
    FiringResult,
    HandOver,
    HandOverGoal,
    HandOverResult,
    Holding,
    Holdings,
    Hosts,
    LeasesView,
    LeaseView,
    Schedule,
    WakeClock,
)
from domain.leases.tables import BEFORE_END, END, START
from domain.model import Done, Grant, Query, Request

SEEN_THROUGH = 5.0  # seconds for which a firing waits for an action; the clock follows up later ones
FIRST_GLANCE, LONGEST_GLANCE = 0.05, 0.4
AT_ONCE = 60  # actions under way, not counting those slower than SLOW seconds
SLOW = 2.0
QUICKLY = 1.0  # seconds for the first try of a hand-over
NO_HOST = "no host is left for it"
ACTIONS = {START: "start", BEFORE_END: "announce", END: "end"}


class Reads(Protocol):
    """Read-only views of leases and calendars."""

    async def lease(self, path: str) -> LeaseView: ...

    async def leases(self, prefix: str, after: str, limit: int) -> list[LeaseView]: ...

    async def calendar(self, query: CalendarQuery, now: datetime) -> CalendarView: ...


class HostHandover:
    """Hands hosts over to reservations and takes them back.

    An order states what a reservation shall hold, and has a version: a repeated order has one effect, a stale one none.
    So the first try may be a local activity, which adds no events to the history; a slow one becomes a normal activity.
    """

    def __init__(self, holdings: Holdings, hosts: Hosts, fence: Fence, patience: ProviderRetry) -> None:
        self._holdings = holdings
        self._hosts = hosts
        self._fence = fence
        self._patience = patience

    @activity.defn(name="lease_hand_over")
    async def hand_over(self, order: HandOver) -> HandOverResult:
        """Brings reservations to what they should hold, with retries. Reads the goal anew before each try."""
        async with self._fence.right(order.path, order.epoch) as right, asyncio.TaskGroup() as together:
            works = {each: together.create_task(self._hand_over_one(order, each, right)) for each in order.reservations}
        return HandOverResult(errors={each: error for each, work in works.items() if (error := work.result())})

    @activity.defn(name="lease_try_hand_over")
    async def try_hand_over(self, order: HandOver) -> HandOverResult:
        """Tries a hand-over once, with a short timeout. Returns the reservations that need retries."""
        async with self._fence.right(order.path, order.epoch) as right:
            wanted = await self._read(order, right)
            async with asyncio.TaskGroup() as together:
                works = {each.reservation: together.create_task(self._try(each, order.want, right)) for each in wanted}
        errors = {each: end for each, work in works.items() if (end := work.result())}
        return HandOverResult(errors=errors, again=[each for each, work in works.items() if work.result() is None])

    async def start(self, grant: Grant) -> Done | Grant:
        """Does a lease's start on hosts inline; returns the grant if a reservation needs retries."""
        return await self._at_once(grant, ends.STARTS, HandOverGoal.ALL)

    async def end(self, grant: Grant) -> Done | Grant:
        """Does a lease's end on hosts inline; returns the grant if a reservation needs retries."""
        return await self._at_once(grant, ends.ENDS, HandOverGoal.NOTHING)

    async def _at_once(self, grant: Grant, boundary: ends.Boundary, want: HandOverGoal) -> Done | Grant:
        work = boundary.work(grant)
        on_hosts = all(each.resource_type in ends.ON_HOSTS for each in ends.to_start(grant))
        if ends.contradictions(grant) or not on_hosts:
            return grant
        paths = [each.path for each in work]
        handed = await self.try_hand_over(HandOver(path=grant.path, epoch=grant.epoch, reservations=paths, want=want))
        if handed.again:
            return ends.after_first_try(grant)
        left, errors = boundary.left(grant, handed.errors), handed.errors
        failed = {"failed": True, "message": ends.partial_failure(boundary.word, errors, work)} if errors else {}
        return left.model_copy(update=failed)

    async def _read(self, order: HandOver, right: OrderRight) -> list[Holding]:
        """Reads what to hand over; a successful read also proves that the action is open."""
        asked = boot_time()
        wanted = await self._holdings.holdings(order)
        right.shown(asked)
        return wanted

    async def _try(self, holding: Holding, want: HandOverGoal, right: OrderRight) -> str | None:
        """Tries one order. Returns its error, an empty string, or None if it should be retried."""
        try:
            async with asyncio.timeout(QUICKLY):
                return await self._hold(holding, want, right)
        except Rejected as error:
            return one_line(error) if want is HandOverGoal.ALL else None
        except (ProviderError, TimeoutError):
            return None

    async def _hand_over_one(self, order: HandOver, reservation: str, right: OrderRight) -> str:
        """Repeats an order until it succeeds or the deadline passes. A rejection is final only when hosts are taken."""
        mine = order.model_copy(update={"reservations": [reservation]})

        async def hand_over() -> str:
            for holding in await self._read(mine, right):
                return await self._hold(holding, order.want, right)
            return ""  # it has no booking any more: there is nothing to hold

        try:
            again = UNANSWERED if order.want is HandOverGoal.ALL else (ProviderError,)
            return await self._patience.call_with_retry(hand_over, again=again)
        except ProviderError as error:
            return one_line(error)

    async def _hold(self, holding: Holding, want: HandOverGoal, right: OrderRight) -> str:
        """Gives one order. Returns an error if a reservation that should hold hosts has none left."""
        await right.prove()
        await self._hosts.hold(holding)
        if holding.returning:
            await self._holdings.returned(holding)
        return "" if holding.hosts or want is not HandOverGoal.ALL else NO_HOST


class EventActivities:
    """Starts the actions of due events, under the workflow ID of their object, like any user."""

    def __init__(self, client: Client, schedule: Schedule) -> None:
        self._client = client
        self._schedule = schedule

    @activity.defn(name="lease_due_events")
    async def due_events(self, query: DueQuery) -> DueList:
        return await self._schedule.due(query)

    @activity.defn(name="lease_fire_events")
    async def fire_events(self, events: DueList) -> FiringResult:
        """Fires due events, AT_ONCE at a time, and waits for each for a few seconds. Returns leases still busy.

        This worker carries out most of these actions itself, so more at a time would delay all. Slow ones are not
        counted.
        """
        clock, pause = asyncio.get_running_loop().time, FIRST_GLANCE
        todo, running, busy = events.due, dict[str, float](), list[str]()  # `running`: lease -> since when
        async with heartbeat():
            while todo or running:
                room = AT_ONCE - sum(clock() - since < SLOW for since in running.values())
                these, todo = todo[:room], todo[room:]
                for due, started in zip(these, await asyncio.gather(*map(self._fire, these)), strict=True):
                    if started:
                        running[due.lease] = clock()
                    else:
                        busy.append(due.lease)
                await asyncio.sleep(pause)
                pause = FIRST_GLANCE if todo else min(pause * 1.5, LONGEST_GLANCE)
                there = await self._schedule.still_due([due for due in events.due if due.lease in running])
                running = {due.lease: running[due.lease] for due in there}
                for lease in [lease for lease, since in running.items() if clock() - since > SEEN_THROUGH]:
                    del running[lease]
                    busy.append(lease)
        return FiringResult(busy=busy)

    @activity.defn(name="lease_wake_clock")
    async def wake_clock(self, wake: WakeClock) -> None:
        """Wakes a pool's clock, or starts it if it does not run."""
        title = f"the clock of the leases in pool {wake.pool}"
        await wake_clock(self._client, names.LEASE_CLOCK, wake, names.clock_id(wake.pool), title)

    async def _fire(self, due: DueEvent) -> bool:
        """Starts an event's action. Returns False if another action runs there; the clock will retry."""
        path = names.event_path(due.lease, due.name) if due.name == BEFORE_END else due.lease
        request = Request(
            path=path,
            action=ACTIONS[due.name],
            spec={"due": stamp(due.due)},
            requested_by=Program.CLOCK,
            reason=f"{due.name} was due at {stamp(due.due)}",
        )
        try:
            await launch(self._client, request)
        except WorkflowAlreadyStartedError:
            return False
        return True


class LeaseReading:
    """Reads of leases, as standalone activities."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    @reads_store
    @activity.defn
    async def read_lease(self, query: Query) -> LeaseView:
        return await refusal_as_answer(self._reads.lease(query.path))

    @reads_store
    @activity.defn
    async def read_leases(self, query: Query) -> LeasesView:
        return LeasesView(leases=await refusal_as_answer(self._reads.leases(query.path, query.after, query.limit)))

    @reads_store
    @activity.defn
    async def read_calendar(self, query: CalendarQuery) -> CalendarView:
        # Temporal's clock where a worker answers; a gateway that reads the store itself has only its own.
        now = activity.info().scheduled_time.astimezone(UTC) if activity.in_activity() else datetime.now(UTC)
        return await refusal_as_answer(self._reads.calendar(query, now))
