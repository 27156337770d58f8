"""Retries provider calls with growing pauses until a deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from domain.errors import Throttled, Unavailable, UnknownOutcome

T = TypeVar("T")
AcquirePermit = Callable[[], AbstractAsyncContextManager[object]]


@dataclass(frozen=True)
class ProviderRetry:
    """Timeouts and pauses of provider calls: for one call, for all tries together, between tries."""

    call: float = 300.0
    total: float = 900.0
    first_pause: float = 0.2
    longest_pause: float = 20.0

    async def call_with_retry(
        self, call: Callable[[], Awaitable[T]], total: float | None = None, room: AcquirePermit = nullcontext
    ) -> T:
        """Repeats a call that was throttled, unavailable or unknown until the deadline; then raises the last error.

        `room` is entered for each try; waiting for it does not count towards the call's timeout.
        """
        deadline, pause = now() + (self.total if total is None else total), self.first_pause
        while True:
            try:
                async with room():
                    return await self.call_once(call)
            except (Throttled, Unavailable, UnknownOutcome) as error:
                wait = jittered(pause, [error])
                if now() + wait > deadline:
                    raise
            await asyncio.sleep(wait)
            pause = self.next_pause(pause)

    async def call_once(self, call: Callable[[], Awaitable[T]]) -> T:
        """Makes one call; without an answer in time, raises UnknownOutcome."""
        try:
            async with asyncio.timeout(self.call):
                return await call()
        except TimeoutError as error:
            raise UnknownOutcome(f"no answer within {self.call:g} s") from error

    def next_pause(self, pause: float) -> float:
        """Returns the pause after the next failure."""
        return min(pause * 2, self.longest_pause)


def jittered(pause: float, answers: Iterable[object]) -> float:
    """Returns the pause with random jitter, and never less than the provider asked for."""
    asked = [answer.retry_after or 0.0 for answer in answers if isinstance(answer, Throttled)]
    return max([0.0, *asked]) + random.uniform(pause / 2, pause)  # noqa: S311  spreads load, guards nothing


def now() -> float:
    """Returns the event loop's time, by which deadlines are computed."""
    return asyncio.get_running_loop().time()
