"""The simulated hypervisor: orders take their time, meet the fault script, and change its books one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from domain.errors import Rejected, StoreUnavailable, Superseded, Unavailable, UnknownOutcome, one_line
from domain.faults import Fault, FaultKind
from domain.machines.ports import HypervisorFacts, HypervisorOrder
from domain.ports import Transactions
from domain.ports import VmOrder as Call
from providers.machines import state
from providers.machines.tables import orders
from providers.simulated.faults import FaultRule, FaultRules
from providers.simulated.tables import lock_cloud
from providers.simulated.transaction import fault_error

NAME = "hypervisor"  # in the fault script, where a cloud has its csp; regions are the kinds of objects


class SimulatedHypervisor:
    """`latency` is seconds per order, `jitter` a fraction of it either way."""

    def __init__(self, database: Transactions, *, latency: float = 0.0, jitter: float = 0.0) -> None:
        self._database = database
        self._latency = latency
        self._jitter = jitter
        self._random = Random()  # noqa: S311 - timing, not secrets
        self._quiet: int | None = None  # the version of the fault script that has no rule for us
        self.in_flight: Counter[str] = Counter()  # path -> orders

    async def perform(self, verb: str, order: HypervisorOrder) -> HypervisorFacts:
        self.in_flight[order.path] += 1
        try:
            await self._pause(self._latency)
            return await self._with_faults(verb, order)
        finally:
            self.in_flight[order.path] -= 1

    async def describe(self, path: str) -> HypervisorFacts:
        await self._pause(self._latency)
        return await self._with_faults("describe", HypervisorOrder(path, path.split(":")[-2], ""))

    async def below(self, prefix: str) -> list[HypervisorFacts]:
        found: list[HypervisorFacts] = []
        while True:
            after = found[-1].path if found else ""
            page = await self._database.run(partial(state.everything, prefix=prefix, after=after))
            found += [thing.facts() for thing in page]
            if len(page) < state.PAGE:
                return found

    async def machines_on(self, node: str) -> list[HypervisorFacts]:
        found = await self._database.run(lambda connection: state.machines_on(connection, node))
        return [thing.facts() for thing in found]

    async def told(self, path: str) -> list[str]:
        """The verbs of all orders for an object that were carried out, in order. For tests and auditors."""
        query = sa.select(orders.c.verb).where(orders.c.path == path).order_by(orders.c.number)
        return list(await self._database.run(lambda connection: connection.execute(query).scalars().all()))

    async def effects(self, path: str) -> int:
        """How often an order really changed the object."""
        return (await self._database.run(lambda connection: state.find(connection, path))).effects

    async def _with_faults(self, verb: str, order: HypervisorOrder, after: int = 0) -> HypervisorFacts:
        """Carry out, or suffer what the fault script says. A delay is waited for, then the later rules are tried."""
        try:
            done = await self._database.run(lambda connection: self._work(connection, verb, order, after))
        except (StoreUnavailable, SQLAlchemyError) as error:
            raise Unavailable(f"the simulated hypervisor's database failed: {one_line(error, 200)}") from error
        if isinstance(done, FaultRule):
            wait = asyncio.sleep if done.fault.kind is FaultKind.HANG else self._pause
            await wait(done.fault.seconds)
            return await self._with_faults(verb, order, done.id)
        if isinstance(done, Exception):
            raise done
        return done

    def _work(
        self, connection: sa.Connection, verb: str, order: HypervisorOrder, after: int
    ) -> HypervisorFacts | FaultRule | Exception:
        """In one transaction. What is raised would take the transaction back, so errors are returned."""
        version = lock_cloud(connection, NAME)
        rules = FaultRules() if version == self._quiet else FaultRules.read(connection, NAME)
        rule = rules.strike(verb, order.kind, Call(order.path, order.token), after) if rules else None
        rules.save(connection)
        self._quiet = None if rules else version
        if rule and rule.fault.kind in (FaultKind.HANG, FaultKind.SLOW):
            return rule
        return _apply_fault(connection, verb, order, rule.fault) if rule else _done(connection, verb, order)

    async def _pause(self, seconds: float) -> None:
        if seconds:
            await asyncio.sleep(seconds * (1 + self._jitter * self._random.uniform(-1, 1)))


def _done(connection: sa.Connection, verb: str, order: HypervisorOrder) -> HypervisorFacts | Exception:
    if verb == "describe":
        return state.find(connection, order.path).facts()
    try:
        return state.carry_out(connection, verb, order)
    except (Rejected, Superseded) as error:
        return error


def _apply_fault(
    connection: sa.Connection, verb: str, order: HypervisorOrder, fault: Fault
) -> HypervisorFacts | Exception:
    reason = fault.message or f"simulated: {fault.kind} on {verb}"
    if fault.kind is FaultKind.LOSE_ANSWER:
        _done(connection, verb, order)
        return UnknownOutcome(reason)
    return fault_error(fault, reason)
