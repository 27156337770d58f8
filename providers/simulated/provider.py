"""What all simulated providers share: a call takes its time, meets the fault script, and is one transaction.

A provider says in `work` what a call does to its tables, and raises a ProviderError or Superseded to refuse it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from domain.errors import (
    NoCapacity,
    ProviderError,
    Rejected,
    StoreUnavailable,
    Superseded,
    Throttled,
    Unavailable,
    UnknownOutcome,
    one_line,
)
from domain.faults import Fault, FaultKind
from domain.ports import Transactions
from providers.simulated.faults import FaultRule, FaultRules
from providers.simulated.tables import lock_cloud

T = TypeVar("T")
Work = Callable[[sa.Connection], T]

DELAYS = (FaultKind.HANG, FaultKind.SLOW)


class SimulatedProvider:
    """`name` stands in the fault script for the cloud; `latency` is seconds per call, `jitter` a fraction of it."""

    def __init__(
        self,
        name: str,
        database: Transactions,
        *,
        latency: float = 0.0,
        jitter: float = 0.0,
        seed: int | None = None,
    ) -> None:
        self.name = name
        self.latency = latency
        self._database = database
        self._jitter = jitter
        self._random = Random(seed)  # noqa: S311 - timing, not secrets
        self._quiet: int | None = None  # the version of the fault script that has no rule for us

    async def call(self, verb: str, region: str, paths: Sequence[str], work: Work[T]) -> T:
        """Carry out one call that is about these paths, or suffer what the fault script says of one of them."""
        await self.pause(self.latency)
        after = 0
        while True:
            struck = await self.run(partial(self._attempt, verb, region, paths, work, after))
            if not isinstance(struck, FaultRule):
                return struck
            if struck.fault.kind in DELAYS:
                await self.wait([struck.fault])
                after = struck.id
                continue
            if struck.fault.kind is FaultKind.LOSE_ANSWER:
                with suppress(Rejected, Superseded):  # that answer is lost too
                    await self.run(partial(self._in_turn, work))
            raise fault_error(struck.fault, verb)

    async def run(self, work: Work[T]) -> T:
        """One transaction, without latency or faults. A database that fails is a provider that is not there."""
        try:
            return await self._database.run(work)
        except (StoreUnavailable, SQLAlchemyError) as error:
            raise self.failed(error) from error

    def failed(self, error: Exception) -> Unavailable:
        """The error that callers meet when the provider's own database fails."""
        return Unavailable(f"the database of the simulated {self.name} failed: {one_line(error, 200)}")

    async def pause(self, seconds: float) -> None:
        """Let so much time pass, give or take the jitter."""
        if seconds:
            await asyncio.sleep(seconds * (1 + self._jitter * self._random.uniform(-1, 1)))

    async def wait(self, delays: Sequence[Fault]) -> None:
        """Let the longest of these delays pass."""
        await asyncio.sleep(max((one.seconds for one in delays if one.kind is FaultKind.HANG), default=0))
        await self.pause(max((one.seconds for one in delays if one.kind is FaultKind.SLOW), default=0))

    def rules(self, connection: sa.Connection) -> FaultRules:
        """Wait for our turn, then read the script; one that holds nothing for us is not read until it changes."""
        version = lock_cloud(connection, self.name)
        if version == self._quiet:
            return FaultRules()
        rules = FaultRules.read(connection, self.name)
        self._quiet = None if rules else version
        return rules

    def _attempt(
        self, verb: str, region: str, paths: Sequence[str], work: Work[T], after: int, connection: sa.Connection
    ) -> T | FaultRule:
        """Do the work, unless a fault meets it. An error takes the transaction back: no rule was used up by then."""
        rules = self.rules(connection)
        for path in paths if rules else ():
            if rule := rules.strike(verb, region, path, after):
                rules.save(connection)
                return rule
        return work(connection)

    def _in_turn(self, work: Work[T], connection: sa.Connection) -> T:
        lock_cloud(connection, self.name)
        return work(connection)


def fault_error(fault: Fault, verb: str) -> ProviderError:
    """What a caller meets when this fault strikes."""
    reason = fault.message or f"simulated: {fault.kind} on {verb}"
    match fault.kind:
        case FaultKind.THROTTLE:
            return Throttled(reason, fault.retry_after)
        case FaultKind.UNAVAILABLE:
            return Unavailable(reason)
        case FaultKind.CAPACITY:
            return NoCapacity(reason)
        case FaultKind.LOSE_ANSWER:
            return UnknownOutcome(reason)
        case _:
            return Rejected(reason)
