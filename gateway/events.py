"""Follows the event stream for many readers at once: new events are read once and handed to all."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from client.actions import ActionClient
from domain.errors import RatchetError
from domain.events import READ_EVENTS, READ_NEWEST_EVENT, Event, EventCursor, EventPage, EventQuery, parse_cursor

PAGE_SIZE = 500
EVENTS_REMEMBERED = 5_000  # recent events, for readers that are a little behind
STORE_POLL_SECONDS = 0.25  # between looks into the store
WORKER_POLL_SECONDS = 2.0  # between looks through a worker, each of which leaves a line in Temporal


class EventFeed:
    """The newest events, and a signal when there are more. It looks for them only while somebody follows."""

    def __init__(self, ratchet: ActionClient, interval: float) -> None:
        self._ratchet = ratchet
        self._interval = interval
        self._start: EventCursor | None = None  # the position before the first remembered event; None: not known yet
        self._positions: list[EventCursor] = []
        self._events: list[Event] = []
        self._more = asyncio.Condition()
        self._followers = 0
        self._looking: asyncio.Task[None] | None = None

    async def newest_position(self) -> EventCursor:
        """The position after the newest event."""
        page = await self._ratchet.run_query(READ_NEWEST_EVENT, EventQuery(), EventPage)
        return parse_cursor(page.cursor)

    async def read_page(self, after: EventCursor) -> list[Event]:
        """The next events after a position, read afresh."""
        query = EventQuery(after=str(after), limit=PAGE_SIZE)
        return (await self._ratchet.run_query(READ_EVENTS, query, EventPage)).events

    @asynccontextmanager
    async def poll_while_following(self) -> AsyncIterator[None]:
        """Look for new events while the block lasts."""
        self._followers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._poll_events())
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers and self._looking:
                self._looking.cancel()
                self._looking = None
                self._forget_events()

    async def wait_for_events(self, cursor: EventCursor, seconds: float) -> list[Event]:
        """The events after a position: at once if there are some, else as soon as one comes; [] if none does."""
        if self._is_remembered(cursor):
            async with self._more:
                try:
                    async with asyncio.timeout(seconds):
                        await self._more.wait_for(
                            lambda: not self._is_remembered(cursor) or self._remembered_events(cursor)
                        )
                except TimeoutError:
                    return []
            if self._is_remembered(cursor):
                return self._remembered_events(cursor)
        found = await self.read_page(cursor)
        if not found:  # nothing after it yet, and the feed has not come as far, or has not begun
            await asyncio.sleep(min(self._interval, seconds))
        return found

    def _is_remembered(self, cursor: EventCursor) -> bool:
        return self._start is not None and cursor >= self._start

    def _remembered_events(self, cursor: EventCursor) -> list[Event]:
        first = bisect_right(self._positions, cursor)
        return self._events[first : first + PAGE_SIZE]

    async def _poll_events(self) -> None:
        cursor: EventCursor | None = None
        while True:
            try:
                cursor = cursor or await self.newest_position()
                self._start = self._start or cursor
                found = await self.read_page(cursor)
            except (RatchetError, RPCError, TemporalError):  # away, or its position is gone: readers meet it themselves
                cursor, found = None, []
                async with self._more:
                    self._forget_events()
                    self._more.notify_all()
            if found:
                cursor = parse_cursor(found[-1].id)
                await self._remember_events(found)
            if len(found) < PAGE_SIZE:
                await asyncio.sleep(self._interval)

    def _forget_events(self) -> None:
        self._start, self._positions, self._events = None, [], []

    async def _remember_events(self, found: list[Event]) -> None:
        async with self._more:
            self._positions += [parse_cursor(event.id) for event in found]
            self._events += found
            if (over := len(self._events) - EVENTS_REMEMBERED) > 0:
                self._start = self._positions[over - 1]
                del self._positions[:over], self._events[:over]
            self._more.notify_all()
