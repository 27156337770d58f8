"""The simulated hypervisor: orders take their time, meet the fault script, and change its books one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from domain.errors import Rejected, StoreUnavailable, Superseded, Unavailable, UnknownOutcome, brief
from domain.faults import Fault, Kind
from domain.machines.port import Facts, Order
from domain.ports import Order as Call
from domain.ports import Transactions
from providers.machines import books
from providers.machines.tables import orders
from providers.simulated.faults import Rule, Rules
from providers.simulated.tables import lock_cloud
from providers.simulated.transaction import trouble

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

    async def perform(self, verb: str, order: Order) -> Facts:
        self.in_flight[order.path] += 1
        try:
            await self._pause(self._latency)
            return await self._meet(verb, order)
        finally:
            self.in_flight[order.path] -= 1

    async def describe(self, path: str) -> Facts:
        await self._pause(self._latency)
        return await self._meet("describe", Order(path, path.split(":")[-2], ""))

    async def below(self, prefix: str) -> list[Facts]:
        found: list[Facts] = []
        while True:
            after = found[-1].path if found else ""
            page = await self._database.run(partial(books.everything, prefix=prefix, after=after))
            found += [thing.facts() for thing in page]
            if len(page) < books.PAGE:
                return found

    async def machines_on(self, node: str) -> list[Facts]:
        found = await self._database.run(lambda connection: books.machines_on(connection, node))
        return [thing.facts() for thing in found]

    async def told(self, path: str) -> list[str]:
        """The verbs of all orders for an object that were carried out, in order. For tests and auditors."""
        query = sa.select(orders.c.verb).where(orders.c.path == path).order_by(orders.c.number)
        return list(await self._database.run(lambda connection: connection.execute(query).scalars().all()))

    async def effects(self, path: str) -> int:
        """How often an order really changed the object."""
        return (await self._database.run(lambda connection: books.find(connection, path))).effects

    async def _meet(self, verb: str, order: Order, after: int = 0) -> Facts:
        """Carry out, or suffer what the fault script says. A delay is waited for, then the later rules are tried."""
        try:
            done = await self._database.run(lambda connection: self._work(connection, verb, order, after))
        except (StoreUnavailable, SQLAlchemyError) as error:
            raise Unavailable(f"the simulated hypervisor's database failed: {brief(error, 200)}") from error
        if isinstance(done, Rule):
            wait = asyncio.sleep if done.fault.kind is Kind.HANG else self._pause
            await wait(done.fault.seconds)
            return await self._meet(verb, order, done.id)
        if isinstance(done, Exception):
            raise done
        return done

    def _work(self, connection: sa.Connection, verb: str, order: Order, after: int) -> Facts | Rule | Exception:
        """In one transaction. What is raised would take the transaction back, so errors are returned."""
        version = lock_cloud(connection, NAME)
        rules = Rules() if version == self._quiet else Rules.read(connection, NAME)
        rule = rules.strike(verb, order.kind, Call(order.path, order.token), after) if rules else None
        rules.save(connection)
        self._quiet = None if rules else version
        if rule and rule.fault.kind in (Kind.HANG, Kind.SLOW):
            return rule
        return _suffer(connection, verb, order, rule.fault) if rule else _done(connection, verb, order)

    async def _pause(self, seconds: float) -> None:
        if seconds:
            await asyncio.sleep(seconds * (1 + self._jitter * self._random.uniform(-1, 1)))


def _done(connection: sa.Connection, verb: str, order: Order) -> Facts | Exception:
    if verb == "describe":
        return books.find(connection, order.path).facts()
    try:
        return books.carry_out(connection, verb, order)
    except (Rejected, Superseded) as error:
        return error


def _suffer(connection: sa.Connection, verb: str, order: Order, fault: Fault) -> Facts | Exception:
    reason = fault.message or f"simulated: {fault.kind} on {verb}"
    if fault.kind is Kind.LOSE_ANSWER:
        _done(connection, verb, order)
        return UnknownOutcome(reason)
    return trouble(fault, reason)
