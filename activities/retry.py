"""Bearing with whoever does the work: what was not answered is asked again, with growing pauses, for so long."""

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
    """How long to bear with a provider: one call, all tries of it, and the pauses between them."""

    call: float = 300.0
    total: float = 900.0
    first_pause: float = 0.2
    longest_pause: float = 20.0

    async def call_with_retry(
        self, call: Callable[[], Awaitable[T]], total: float | None = None, room: AcquirePermit = nullcontext
    ) -> T:
        """Call, and call again what was throttled, unavailable or unknown. The last trouble is raised.

        `room` is entered for each try. To wait for it does not count as waiting for an answer.
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
        """One call. If no answer comes in time, its outcome is unknown."""
        try:
            async with asyncio.timeout(self.call):
                return await call()
        except TimeoutError as error:
            raise UnknownOutcome(f"no answer within {self.call:g} s") from error

    def next_pause(self, pause: float) -> float:
        """The pause after the next failure."""
        return min(pause * 2, self.longest_pause)


def jittered(pause: float, answers: Iterable[object]) -> float:
    """Half of it is chance, so that not all come back at once; never earlier than the provider asked for."""
    asked = [answer.retry_after or 0.0 for answer in answers if isinstance(answer, Throttled)]
    return max([0.0, *asked]) + random.uniform(pause / 2, pause)  # noqa: S311  spreads load, guards nothing


def now() -> float:
    """The clock that deadlines are reckoned with."""
    return asyncio.get_running_loop().time()
