"""Turns at the admission: a tenant's burst leaves most turns to the others, and its quota is not asked in vain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import ceil
from weakref import WeakValueDictionary

from client.errors import Unanswered
from domain.errors import Category
from domain.model import Refusal

TENANT_ADMISSIONS = 4  # of one tenant
MAX_ADMISSIONS = 16  # requests that wait for their admission at once; a worker admits tens per second
TURN_SECONDS = 60.0  # that a request waits for its turn
PACE_SECONDS = 60.0  # that a refused tenant keeps its pace: the minute of its rate


@dataclass
class TenantPause:
    """What a tenant was told, when its next request may pass, and when all this is forgotten."""

    refusal: Refusal
    next_at: float
    until: float


class AdmissionTurns:
    """Who waits for an admission, and which tenants were told to ask later by the refusals of their quotas."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns = asyncio.Semaphore(MAX_ADMISSIONS)
        self._tenant_turns = WeakValueDictionary[str, asyncio.Semaphore]()  # of those who wait now
        self._pauses: dict[str, TenantPause] = {}

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

    def note_answer(self, tenant: str, refusal: Refusal | None) -> None:
        """Remembers the refusal of a request that may pass later. An admission ends a pause without a pace."""
        now = self._clock()
        if refusal and refusal.category is Category.QUOTA and refusal.retry_after:
            self._pauses = {paused: pause for paused, pause in self._pauses.items() if pause.until > now}
            wait = refusal.pace or refusal.retry_after
            self._pauses[tenant] = TenantPause(refusal, now + wait, now + max(PACE_SECONDS, 2 * wait))
        elif (pause := self._pauses.get(tenant)) and not pause.refusal.pace:
            del self._pauses[tenant]

    def find_refusal(self, tenant: str) -> Refusal | None:
        """Returns what the tenant was told; None if this request passes.

        When the time is over one request passes: if all that wait did, a burst would delay the other tenants, and most
        of it be refused. A tenant that has used up its rate goes on at the pace of that rate.
        """
        pause, now = self._pauses.get(tenant), self._clock()
        if pause is None or pause.until <= now:
            return None
        if (left := pause.next_at - now) > 0:
            return pause.refusal.model_copy(update={"retry_after": ceil(left)})
        # The requests after this one wait: by the tenant's pace, or until this one has its answer.
        pause.next_at = pause.next_at + pause.refusal.pace if pause.refusal.pace else now + pause.refusal.retry_after
        return None
