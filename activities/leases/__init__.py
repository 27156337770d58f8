"""Leases at work: handing over and taking back, firing events that are due, waking the clock, reading."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Protocol

from temporalio import activity
from temporalio.client import Client, WorkflowContinuedAsNewError, WorkflowFailureError, WorkflowHandle
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.pulse import pulse
from activities.reading import answer
from domain import registry, wire
from domain.errors import ProviderError, Rejected, brief
from domain.leases import names
from domain.leases.dates import stamp
from domain.leases.tables import BEFORE_END, END, START
from domain.leases.views import (
    CalendarQuery,
    CalendarView,
    Due,
    DueList,
    DueQuery,
    Fired,
    Handed,
    HandOver,
    Holding,
    Holdings,
    Hosts,
    LeasesView,
    LeaseView,
    Schedule,
    Wake,
    Want,
)
from domain.model import Outcome, Query, Request
from domain.paths import kind_of, short

TASK_TIMEOUT = timedelta(seconds=5)
SEEN_THROUGH = 10.0  # seconds for which a firing waits for its actions; a longer one is looked after by the clock
ACTIONS = {START: "start", BEFORE_END: "announce", END: "end"}


class Reads(Protocol):
    async def lease(self, path: str) -> LeaseView: ...

    async def leases(self, prefix: str, after: str, limit: int) -> list[LeaseView]: ...

    async def calendar(self, query: CalendarQuery, now: datetime) -> CalendarView: ...


class Hands:
    """Hands hosts over and takes them back, patiently."""

    def __init__(self, holdings: Holdings, hosts: Hosts, patience: float) -> None:
        self._holdings = holdings
        self._hosts = hosts
        self._patience = patience

    @activity.defn(name=names.HAND_OVER)
    async def hand_over(self, order: HandOver) -> Handed:
        """Bring reservations to what they should hold. What each should hold is read here, so it is never stale."""
        async with pulse():
            wanted = await self._holdings.holdings(order.reservations, order.want)
            ends = await asyncio.gather(*(self._bring_about(each, order.want is Want.NOTHING) for each in wanted))
        return Handed(errors={each.reservation: error for each, error in zip(wanted, ends, strict=True) if error})

    async def _bring_about(self, holding: Holding, nothing: bool) -> str:
        """Order until it is so, or patience ends. A no is final, unless something has to be given back."""
        if not holding.hosts and not nothing:
            return "no host is left for it"
        clock, pause = asyncio.get_running_loop().time, 0.1
        deadline = clock() + self._patience
        while True:
            try:
                await self._hosts.hold(holding)
                return ""
            except ProviderError as error:
                if (isinstance(error, Rejected) and not nothing) or clock() + pause > deadline:
                    return brief(error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 10)


class Firing:
    """Starts the actions of events that are due, under the ID of their object, as any user would."""

    def __init__(self, client: Client, schedule: Schedule) -> None:
        self._client = client
        self._schedule = schedule

    @activity.defn(name=names.DUE_EVENTS)
    async def due_events(self, query: DueQuery) -> DueList:
        return await self._schedule.due(query)

    @activity.defn(name=names.FIRE_EVENTS)
    async def fire_events(self, events: DueList) -> Fired:
        """Fire all of them at once and see them through for a while."""
        async with pulse():
            fired = await asyncio.gather(*(self._fire(due) for due in events.due))
        return Fired(busy=[due.lease for due, done in zip(events.due, fired, strict=True) if not done])

    @activity.defn(name=names.WAKE_CLOCK)
    async def wake_clock(self, wake: Wake) -> None:
        """The clock of a pool looks again; if there is none, it begins."""
        await self._client.start_workflow(
            names.LEASE_CLOCK,
            wake,
            id=names.clock_id(wake.pool),
            task_queue=wire.ACTIONS_QUEUE,
            task_timeout=TASK_TIMEOUT,
            start_signal=names.LOOK_AGAIN,
            static_summary=f"the clock of the leases in pool {wake.pool}",
        )

    async def _fire(self, due: Due) -> bool:
        """True if the event's action ran to an end, whatever that was. False: not now, the clock will look again."""
        path = names.event_path(due.lease, due.name) if due.name == BEFORE_END else due.lease
        request = Request(
            path=path,
            action=ACTIONS[due.name],
            spec={"due": stamp(due.due)},
            requested_by="clock",
            reason=f"{due.name} was due at {stamp(due.due)}",
        )
        try:
            handle = await self._start(request)
        except WorkflowAlreadyStartedError:
            return False
        return await _seen_through(handle)

    async def _start(self, request: Request) -> WorkflowHandle[object, Outcome]:
        verb = registry.kind_at(request.path).verb(request.action)
        told = {"ObjectPath": request.path, "ObjectKind": kind_of(request.path), "Action": request.action}
        pairs = [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in told.items()]
        return await self._client.start_workflow(
            verb.workflow,
            request,
            id=request.path,
            task_queue=wire.ACTIONS_QUEUE,
            result_type=Outcome,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            task_timeout=TASK_TIMEOUT,
            search_attributes=TypedSearchAttributes(pairs),
            static_summary=f"{request.action} {short(request.path)}",
            request_eager_start=True,  # the worker is here: the first task comes back with the answer
        )


async def _seen_through(handle: WorkflowHandle[object, Outcome]) -> bool:
    end = asyncio.ensure_future(handle.result(follow_runs=False))
    try:
        if not (await asyncio.wait({end}, timeout=SEEN_THROUGH))[0]:
            return False
        end.result()
    except WorkflowFailureError as failure:
        return getattr(failure.cause, "type", "") != wire.REFUSED  # a refused one may be let in a moment later
    except WorkflowContinuedAsNewError:
        return True  # somebody took over
    finally:
        end.cancel()
    return True


class LeaseReading:
    """Reads, as standalone activities."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    @activity.defn(name=names.READ_LEASE)
    async def read_lease(self, query: Query) -> LeaseView:
        return await answer(self._reads.lease(query.path))

    @activity.defn(name=names.READ_LEASES)
    async def read_leases(self, query: Query) -> LeasesView:
        return LeasesView(leases=await answer(self._reads.leases(query.path, query.after, query.limit)))

    @activity.defn(name=names.READ_CALENDAR)
    async def read_calendar(self, query: CalendarQuery) -> CalendarView:
        now = activity.info().scheduled_time.astimezone(UTC)  # the server's clock, not ours
        return await answer(self._reads.calendar(query, now))
