"""The base of all simulated providers: a call takes time, meets the fault script, and is one transaction.

A provider passes `work`, which changes its tables, or raises a ProviderError or Superseded to refuse the call.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import uniform
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
    format_one_line,
)
from domain.faults import Fault, FaultKind
from domain.ports import TransactionRunner
from providers.simulated.faults import FaultRule, LockedFaultRules
from providers.simulated.tables import lock_cloud_row

T = TypeVar("T")
TransactionWork = Callable[[sa.Connection], T]

DELAY_KINDS = (FaultKind.HANG, FaultKind.SLOW)


class SimulatedProvider:
    """Base of simulated providers; `name` is its csp in the fault script, `latency` seconds per call."""

    def __init__(self, name: str, database: TransactionRunner, *, latency: float = 0.0, jitter: float = 0.0) -> None:
        self.name = name
        self.latency = latency
        self._database = database
        self._jitter = jitter
        self._quiet: int | None = None  # version of the fault script without a rule for this provider
        self._delayed = Counter[str]()  # paths of the calls that wait because of a fault

    async def perform_call(self, verb: str, region: str, paths: Sequence[str], work: TransactionWork[T]) -> T:
        """Carries out a call about these paths, unless a rule of the fault script applies to one of them."""
        await self.sleep_with_jitter(self.latency)
        after = 0
        while True:
            struck = await self.run_transaction(partial(self._attempt_call, verb, region, paths, work, after))
            if not isinstance(struck, FaultRule):
                return struck
            if struck.fault.kind in DELAY_KINDS:
                await self.simulate_delays([struck.fault], paths)
                after = struck.id
                continue
            if struck.fault.kind is FaultKind.LOSE_ANSWER:
                with suppress(Rejected, Superseded):  # lost like any other answer
                    await self.run_transaction(partial(self._run_under_lock, work))
            raise error_of_fault(struck.fault, verb)

    async def run_transaction(self, work: TransactionWork[T]) -> T:
        """Runs one transaction without latency or faults. A database error is raised as Unavailable."""
        try:
            return await self._database.run_transaction(work)
        except (StoreUnavailable, SQLAlchemyError) as error:
            text = f"the database of the simulated {self.name} failed: {format_one_line(error, 200)}"
            raise Unavailable(text) from error

    async def sleep_with_jitter(self, seconds: float) -> None:
        """Sleeps for so many seconds, with jitter."""
        if seconds:
            await asyncio.sleep(seconds * (1 + self._jitter * uniform(-1, 1)))  # noqa: S311 - timing, not secrets

    async def simulate_delays(self, delays: Sequence[Fault], paths: Sequence[str]) -> None:
        """Sleeps for the longest of these delays, which calls about these paths have met."""
        calls = Counter(paths)
        self._delayed += calls
        try:
            await asyncio.sleep(max((one.seconds for one in delays if one.kind is FaultKind.HANG), default=0))
            await self.sleep_with_jitter(max((one.seconds for one in delays if one.kind is FaultKind.SLOW), default=0))
        finally:
            self._delayed -= calls

    def delayed_paths(self) -> set[str]:
        """Returns the paths of this process's calls that have met a delay and wait for its end."""
        return set(self._delayed)

    def read_fault_rules(self, connection: sa.Connection) -> LockedFaultRules:
        """Locks the cloud and reads its fault rules; a script without any is not read again until it changes."""
        version = lock_cloud_row(connection, self.name)
        if version == self._quiet:
            return LockedFaultRules()
        rules = LockedFaultRules.lock_rules_for(connection, self.name)
        self._quiet = None if rules else version
        return rules

    def _attempt_call(
        self,
        verb: str,
        region: str,
        paths: Sequence[str],
        work: TransactionWork[T],
        after: int,
        connection: sa.Connection,
    ) -> T | FaultRule:
        """Does the work, or returns the fault rule that applies. An error rolls back: no rule is used up."""
        rules = self.read_fault_rules(connection)
        for path in paths if rules else ():
            if rule := rules.take_matching_rule(verb, region, path, after):
                rules.save_rule_counts(connection)
                return rule
        return work(connection)

    def _run_under_lock(self, work: TransactionWork[T], connection: sa.Connection) -> T:
        lock_cloud_row(connection, self.name)
        return work(connection)


def error_of_fault(fault: Fault, verb: str) -> ProviderError:
    """Returns the error that a caller gets for this fault."""
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
