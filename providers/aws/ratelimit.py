"""No faster than EC2 lets us: a call that would be throttled anyway waits here instead."""

from __future__ import annotations

import asyncio

BURST = 5  # launches that EC2 takes at once after a quiet time


class RateLimiter:
    """So many turns in a second, after a burst."""

    def __init__(self, per_second: float, burst: int = BURST) -> None:
        self._gap = 1 / per_second
        self._slack = self._gap * burst
        self._next = 0.0

    async def acquire(self) -> None:
        """Wait for it; first come, first served."""
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self._slack) + self._gap
        if self._next > now:
            await asyncio.sleep(self._next - now)
