"""Rate limiter for EC2 launches: a call that would be throttled waits here instead."""

from __future__ import annotations

import asyncio

BURST_SIZE = 5  # launches that EC2 accepts at once after a pause


class RateLimiter:
    """Limits calls per second, after a burst."""

    def __init__(self, per_second: float, burst: int = BURST_SIZE) -> None:
        self._gap = 1 / per_second
        self._slack = self._gap * burst
        self._next = 0.0

    async def wait_for_turn(self) -> None:
        """Waits for a turn; first come, first served."""
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self._slack) + self._gap
        if self._next > now:
            await asyncio.sleep(self._next - now)
