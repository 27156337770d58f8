"""Turns at the admission: a tenant's burst leaves most turns to the others, and its quota is not asked in vain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from math import ceil
from weakref import WeakValueDictionary

from client.errors import Unanswered
from domain.errors import Category
from domain.model import Refusal

TENANT_ADMISSIONS = 4  # of one tenant
MAX_ADMISSIONS = 16  # requests that wait for their admission at once; a worker admits tens per second
TURN_SECONDS = 60.0  # that a request waits for its turn


class AdmissionTurns:
    """Who waits for an admission, and which tenants were told to ask later by the refusals of their quotas."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns = asyncio.Semaphore(MAX_ADMISSIONS)
        self._tenant_turns = WeakValueDictionary[str, asyncio.Semaphore]()  # of those who wait now
        self._refused: dict[str, tuple[float, Refusal]] = {}

    @asynccontextmanager
    async def take_turn(self, tenant: str, path: str) -> AsyncIterator[None]:
        """Waits for a turn of the tenant, then for one of all."""
        own = self._tenant_turns.setdefault(tenant, asyncio.Semaphore(TENANT_ADMISSIONS))
        async with AsyncExitStack() as turns:
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    for turn in (own, self._turns):
                        await turns.enter_async_context(turn)
            except TimeoutError as error:
                message = f"{path} was not asked for: others wait for their admission"
                raise Unanswered(message, "try again") from error
            yield

    def note_refusal(self, tenant: str, refusal: Refusal | None) -> None:
        """Remembers the refusal of a request that may pass later."""
        if refusal and refusal.category is Category.QUOTA and refusal.retry_after:
            now = self._clock()
            self._refused = {paused: pause for paused, pause in self._refused.items() if pause[0] > now}
            self._refused[tenant] = (now + refusal.retry_after, refusal)

    def find_refusal(self, tenant: str) -> Refusal | None:
        """Returns what the tenant was told, if its time is not over."""
        until, refusal = self._refused.get(tenant, (0.0, None))
        left = until - self._clock()
        return refusal.model_copy(update={"retry_after": ceil(left)}) if refusal and left > 0 else None
