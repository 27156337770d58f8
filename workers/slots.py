"""Admission goes before progress: while many requests wait for an answer, a process takes no more activities.

Somebody waits for each answer; an admitted action can wait. Both need the same processors and the same server.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)

BEFORE_LATE = 200  # so many admitted while a request waited make it late, however fast the machine is
RUSH = 2  # late begins...
RUSH_SECONDS = 0.5  # ... within this time are a rush
LONGEST_HOLD = 10.0  # seconds: a rush that does not end must not stop all progress
MAX_ACTIVITIES = 100  # at a time, as by default


class AdmissionRush:
    """Knows from the requests that this process admits whether many more wait for it at Temporal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._admitted: deque[float] = deque(
            [float("-inf")] * BEFORE_LATE, maxlen=BEFORE_LATE
        )  # times of the last begins
        self._late: deque[float] = deque([float("-inf")] * RUSH, maxlen=RUSH)  # times of the last late begins

    def note_admission(self, waited: timedelta) -> None:
        """Counts a request that begins so long after its workflow was started. It is late if many came before it."""
        now = self._clock()
        if now - waited.total_seconds() <= self._admitted[0]:
            self._late.append(now)
        self._admitted.append(now)

    @property
    def seconds_left(self) -> float:
        """Seconds until the rush is over, if no further begin is late; 0 if there is none."""
        return max(0.0, self._late[0] + RUSH_SECONDS - self._clock())

    async def wait_until_calm(self) -> None:
        """Waits until the rush is over, or has lasted too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_HOLD):
                while left := self.seconds_left:  # noqa: ASYNC110  nothing happens: that is what is awaited
                    await asyncio.sleep(left)


class ActivitySlots(CustomSlotSupplier):
    """The slots of one queue's activities. None is given during a rush."""

    def __init__(self, rush: AdmissionRush, number: int = MAX_ACTIVITIES) -> None:
        self._rush = rush
        self._free = number
        self._lock = threading.Lock()  # slots are released in threads of the SDK
        self._loop = asyncio.get_running_loop()
        self._released = asyncio.Event()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Waits for the end of a rush, then for a free slot."""
        await self._rush.wait_until_calm()
        while not self._take_slot():
            self._released.clear()
            await self._released.wait()
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Gives a slot for an activity that comes with its workflow task, unless there is a rush."""
        return SlotPermit() if not self._rush.seconds_left and self._take_slot() else None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """Does nothing: a slot counts from its reservation."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Frees the slot."""
        with self._lock:
            self._free += 1
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._released.set)

    def _take_slot(self) -> bool:
        with self._lock:
            if self._free == 0:
                return False
            self._free -= 1
            return True
