"""A simulated provider for ordered actions: a ledger, and a function that applies an order to an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

import sqlalchemy as sa

from domain.ordered import ObjectFacts, ObjectOrder
from domain.paths import kind_of
from providers.simulated.ledger import Ledger, LedgerOrder, LedgerRow
from providers.simulated.provider import SimulatedProvider

Entry = TypeVar("Entry", bound=LedgerRow)


class SimulatedObjects(Generic[Entry]):
    """A simulated `domain.ordered.ObjectProvider`, stored in a database. In the fault script, regions are kinds."""

    def __init__(
        self,
        provider: SimulatedProvider,
        ledger: Ledger[Entry],
        change: Callable[[Entry, ObjectOrder], Entry],  # or raises Rejected
        facts: Callable[[Entry], ObjectFacts],
    ) -> None:
        self._provider = provider
        self._ledger = ledger
        self._change = change
        self._facts = facts

    async def perform(self, order: ObjectOrder) -> ObjectFacts:
        work = partial(self._record, order=order)
        return self._facts(await self._provider.call(order.verb, order.kind, [order.path], work))

    async def describe(self, path: str) -> ObjectFacts:
        kind = kind_of(path)
        find = partial(self._ledger.find, path=path, kind=kind)
        return self._facts(await self._provider.call("describe", kind, [path], find))

    async def living(self, prefix: str, after: str) -> list[ObjectFacts]:
        page = await self._provider.run(partial(self._ledger.page, prefix=prefix, after=after))
        return [replace(self._facts(row), epoch=row.epoch) for row in page]

    async def verbs(self, path: str) -> list[str]:
        """Returns the orders carried out on an object. For tests and audits."""
        return await self._provider.run(partial(self._ledger.verbs, path=path))

    def _record(self, connection: sa.Connection, order: ObjectOrder) -> Entry:
        entry = LedgerOrder(order.path, order.kind, order.verb, order.token, order.epoch)
        return self._ledger.record(connection, entry, lambda old: self._change(old, order))
