"""The clock of a pool: one durable timer for all its leases, set to the next event."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.leases import LeaseEventActivities
    from domain.errors import format_count
    from domain.leases import names
    from domain.leases.messages import DueEvent, DueEvents, DueEventsQuery, WakePoolClock
    from workflows.calls import run_local_activity, should_continue_as_new
    from workflows.clock import ClockWorkflow
    from workflows.leases import calls

EVENTS_PER_CHUNK = 500  # events fired by one activity
FIRST_PAUSE, LONGEST_PAUSE = timedelta(milliseconds=100), timedelta(seconds=10)


@workflow.defn(name=names.LEASE_CLOCK)
class LeaseClock(ClockWorkflow):
    """The companion of a pool: it fires the events of its leases when they are due."""

    def __init__(self) -> None:
        super().__init__()
        self._firing: dict[str, DueEvent] = {}
        self._pause = FIRST_PAUSE  # before due events that could not be fired are tried again
        self._tasks: list[asyncio.Task[None]] = []

    @workflow.run
    async def run(self, wake: WakePoolClock) -> None:
        """Fires due events, sleeps until the next one, and ends when none is left."""
        while True:
            self._look = False
            query = DueEventsQuery(pool=wake.pool, at=workflow.now(), busy=list(self._firing))
            seen = await run_local_activity(LeaseEventActivities.due_events, query)
            self._fire_in_background(seen.due)
            if not (self._firing or self._look or seen.waiting or seen.next) and await self._may_end():
                return
            if should_continue_as_new():
                await workflow.wait_condition(lambda: not self._firing and workflow.all_handlers_finished())
                workflow.continue_as_new(wake)
            await self._wait_for_work(seen)

    def _fire_in_background(self, due: list[DueEvent]) -> None:
        """Fires events in the background, as one slow start must not delay the others."""
        self._tasks = [task for task in self._tasks if not task.done()]
        for first in range(0, len(due), EVENTS_PER_CHUNK):
            chunk = due[first : first + EVENTS_PER_CHUNK]
            self._firing.update({event.lease: event for event in chunk})
            self._tasks.append(asyncio.create_task(self._fire_event_chunk(chunk)))

    async def _fire_event_chunk(self, chunk: list[DueEvent]) -> None:
        """Fires a chunk of events. Leases that are busy are tried again after a growing pause."""
        busy = (await calls.fire_events(DueEvents(due=chunk))).busy
        self._unmark_firing_leases([event.lease for event in chunk if event.lease not in busy])
        if busy:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            await workflow.sleep(self._pause, summary=f"busy: {format_count(len(busy), 'lease')}")
            self._unmark_firing_leases(busy)
        else:
            self._pause = FIRST_PAUSE

    def _unmark_firing_leases(self, leases: list[str]) -> None:
        for lease in leases:
            del self._firing[lease]
        self._look = self._look or bool(leases)

    async def _wait_for_work(self, seen: DueEvents) -> None:
        """Waits until a signal comes, a firing ends, or the next event is due."""
        waits = [seen.next - workflow.now()] if seen.next else []
        if seen.waiting and not self._firing:  # they wait for an action that this clock did not start
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            waits.append(self._pause)
        summary = f"next event at {seen.next:%Y-%m-%d %H:%M:%SZ}" if seen.next else "events are held up"
        await self._sleep_until_due(waits, summary)
