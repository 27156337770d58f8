"""How long a request waits for a worker's answer: longer while workers take work from the queue.

In a rush all that waits is answered, only later; where no worker takes work, waiting longer helps nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

R = TypeVar("R")

NEVER = 0.0


class PollWatch:
    """Tells whether any worker has polled a queue lately. Compares moments of the server's clock only with each other.

    Those who wait share the looks: a thousand of them must not load a server that has much to do.
    """

    def __init__(self, read_last_poll: Callable[[], Awaitable[float]]) -> None:
        self._read_last_poll = read_last_poll
        self._lock = asyncio.Lock()
        self._looked_at = -float("inf")
        self._last_poll = NEVER
        self._polled_at = -float("inf")  # when two looks showed a poll between them

    async def is_polled(self, seconds: float) -> bool:
        """Looks, if nobody has just done so. Returns whether two looks of the last seconds had a poll between them."""
        clock = asyncio.get_running_loop().time
        async with self._lock:
            since_look = clock() - self._looked_at
            if since_look >= seconds / 4:
                last = await self._read_last_poll()
                if last > self._last_poll and since_look < seconds:
                    self._polled_at = clock()
                self._last_poll, self._looked_at = last, clock()
            return clock() - self._polled_at < seconds


class Patience:
    """The patience of one request: `seconds`, and up to `busy_seconds` while workers take work.

    `on_delay` is called once, when the longer patience begins.
    """

    def __init__(
        self, watch: PollWatch, seconds: float, busy_seconds: float, on_delay: Callable[[], None] = lambda: None
    ) -> None:
        self._watch = watch
        self._seconds = seconds
        self._busy_seconds = busy_seconds
        self._on_delay = on_delay
        self._is_delayed = False
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()

    @property
    def waited_seconds(self) -> float:
        return self._clock() - self._began

    async def await_answer(self, work: Awaitable[R]) -> R:
        """Awaits work. Raises TimeoutError when the patience ends."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=self._seconds / 4))[0]:
                await self.check()
            return task.result()
        finally:
            cancel_quietly(task)

    async def check(self) -> None:
        """Raises TimeoutError if the patience has ended."""
        if self.waited_seconds < self._seconds / 5:  # looks begin early: a worker that has its hands full polls seldom
            return
        if self.waited_seconds >= max(self._seconds, self._busy_seconds):
            raise TimeoutError
        is_polled = await self._watch.is_polled(self._seconds)
        if self.waited_seconds < self._seconds:
            return
        if not is_polled:
            raise TimeoutError
        if not self._is_delayed:
            self._is_delayed = True
            self._on_delay()


def cancel_quietly(task: asyncio.Future[R]) -> None:
    """Cancels a task that has not ended, and takes its error, which asyncio would log."""
    if not task.done():
        task.cancel()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


async def run_with_timeout(seconds: float, work: Awaitable[R]) -> R:
    """Awaits work with a timeout. Not asyncio.timeout, as the SDK turns a cancel into an error."""
    task = asyncio.ensure_future(work)
    try:
        if not (await asyncio.wait({task}, timeout=seconds))[0]:
            raise TimeoutError
        return task.result()
    finally:
        cancel_quietly(task)
