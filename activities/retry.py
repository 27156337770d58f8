"""Retries: the policies by which Temporal tries activities again, and growing pauses for loops of our own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from temporalio.common import RetryPolicy

from domain.errors import ProviderError, Throttled, Unavailable, UnknownOutcome

T = TypeVar("T")
AcquirePermit = Callable[[], AbstractAsyncContextManager[object]]

# An unavailable store fails nothing: retries continue, and succeed soon after it is back. Work of a dead worker is
# taken over at once. Providers are spared by ProviderRetry.
STORE_RETRY = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=5))
READ_RETRY = RetryPolicy(maximum_interval=timedelta(seconds=2))  # somebody waits for the answer
ONCE = RetryPolicy(maximum_attempts=1)

LOOK_SHARE = 0.1  # of the time that a provider has been at work: how late we notice that it is done
UNANSWERED: tuple[type[ProviderError], ...] = (Throttled, Unavailable, UnknownOutcome)


@dataclass(frozen=True)
class ProviderRetry:
    """Timeouts and pauses of provider calls: for one call, for all tries together, between tries."""

    call_seconds: float = 300.0
    total_seconds: float = 900.0
    first_pause: float = 0.2
    longest_pause: float = 20.0

    async def call_with_retry(
        self,
        call: Callable[[], Awaitable[T]],
        total: float | None = None,
        room: AcquirePermit = nullcontext,
        again: tuple[type[ProviderError], ...] = UNANSWERED,
    ) -> T:
        """Repeats a call after the errors in `again` until the deadline; then raises the last error.

        `room` is entered for each try; waiting for it does not count towards the call's timeout.
        """
        began, pauses = monotonic_now(), self.pauses()
        deadline = began + (self.total_seconds if total is None else total)
        while True:
            try:
                async with room():
                    return await self.call_with_timeout(call)
            except again as error:
                wait = jittered_pause(self._pause_after(error, monotonic_now() - began, pauses), [error])
                if monotonic_now() + wait > deadline:
                    raise
            await asyncio.sleep(wait)

    async def call_with_timeout(self, call: Callable[[], Awaitable[T]]) -> T:
        """Makes one call; without an answer in time, raises UnknownOutcome."""
        try:
            async with asyncio.timeout(self.call_seconds):
                return await call()
        except TimeoutError as error:
            raise UnknownOutcome(f"no answer within {self.call_seconds:g} s") from error

    def _pause_after(self, error: ProviderError, elapsed: float, pauses: Iterator[float]) -> float:
        """Returns the next pause: a provider at work is not spared, but looked at in a share of its own time."""
        if isinstance(error, Unavailable) and error.at_work:
            return min(max(self.first_pause, elapsed * LOOK_SHARE), self.longest_pause)
        return next(pauses)

    def pauses(self) -> Iterator[float]:
        """Returns the pauses between tries, before they are jittered."""
        return growing_pauses(self.first_pause, self.longest_pause)


NEARBY = ProviderRetry(first_pause=0.1, longest_pause=10.0)  # a hypervisor or a site is nearer than a cloud


def growing_pauses(first: float, longest: float) -> Iterator[float]:
    """Yields pauses in seconds: each is twice as long as the one before, up to the longest."""
    while True:
        yield first
        first = min(first * 2, longest)


def jittered_pause(pause: float, answers: Iterable[object]) -> float:
    """Returns the pause with random jitter, and never less than the provider asked for."""
    asked = [answer.retry_after or 0.0 for answer in answers if isinstance(answer, Throttled)]
    return max([0.0, *asked]) + random.uniform(pause / 2, pause)  # noqa: S311  spreads load, guards nothing


def monotonic_now() -> float:
    """Returns the event loop's time, by which deadlines are computed."""
    return asyncio.get_running_loop().time()
