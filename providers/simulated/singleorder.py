"""A simulated provider for single-order actions: a ledger, and a function that applies an order to an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

import sqlalchemy as sa

from domain.paths import kind_of
from domain.singleorder import ObjectFacts, ProviderOrder
from providers.simulated.ledger import Ledger, LedgerObject, LedgerOrder
from providers.simulated.provider import SimulatedProvider

Entry = TypeVar("Entry", bound=LedgerObject)


class SimulatedObjectProvider(Generic[Entry]):
    """A simulated `domain.singleorder.ObjectProvider`, stored in a database. In the fault script, regions are kinds."""

    def __init__(
        self,
        provider: SimulatedProvider,
        ledger: Ledger[Entry],
        change: Callable[[Entry, ProviderOrder], Entry],  # or raises Rejected
        facts: Callable[[Entry], ObjectFacts],
    ) -> None:
        self._provider = provider
        self._ledger = ledger
        self._change = change
        self._facts = facts

    async def perform_order(self, order: ProviderOrder) -> ObjectFacts:
        work = partial(self._carry_out_once, order=order)
        return self._facts(await self._provider.perform_call(order.verb, order.kind, [order.path], work))

    async def describe_object(self, path: str) -> ObjectFacts:
        kind = kind_of(path)
        find = partial(self._ledger.find_object, path=path, kind=kind)
        return self._facts(await self._provider.perform_call("describe", kind, [path], find))

    async def list_existing_objects(self, prefix: str, after: str) -> list[ObjectFacts]:
        page = await self._provider.run_transaction(partial(self._ledger.read_page, prefix=prefix, after=after))
        return [replace(self._facts(row), epoch=row.epoch) for row in page]

    async def list_carried_out_verbs(self, path: str) -> list[str]:
        """Returns the orders carried out on an object. For tests and audits."""
        return await self._provider.run_transaction(partial(self._ledger.list_carried_out_verbs, path=path))

    def _carry_out_once(self, connection: sa.Connection, order: ProviderOrder) -> Entry:
        entry = LedgerOrder(order.path, order.kind, order.verb, order.token, order.epoch)
        return self._ledger.carry_out_order_once(connection, entry, lambda old: self._change(old, order))
