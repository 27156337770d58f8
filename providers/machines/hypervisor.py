"""The simulated hypervisor: a ledger of machines, disks, images and nodes behind a `SimulatedProvider`."""

from __future__ import annotations

from collections import Counter
from functools import partial

from domain.machines.ports import HypervisorFacts, HypervisorOrder
from domain.ports import Transactions
from providers.machines import state
from providers.simulated.provider import SimulatedProvider

NAME = "hypervisor"  # its csp in the fault script; the regions are kinds of objects


class SimulatedHypervisor:
    """Hypervisor stored in a database. `latency` is seconds per order, `jitter` a fraction of it either way."""

    def __init__(self, database: Transactions, *, latency: float = 0.0, jitter: float = 0.0) -> None:
        self._provider = SimulatedProvider(NAME, database, latency=latency, jitter=jitter)
        self.in_flight: Counter[str] = Counter()  # path -> orders

    async def perform(self, verb: str, order: HypervisorOrder) -> HypervisorFacts:
        self.in_flight[order.path] += 1
        try:
            work = partial(state.carry_out, verb=verb, order=order)
            return await self._provider.call(verb, order.kind, [order.path], work)
        finally:
            self.in_flight[order.path] -= 1

    async def describe(self, path: str) -> HypervisorFacts:
        find = partial(state.LEDGER.find, path=path)
        return (await self._provider.call("describe", path.split(":")[-2], [path], find)).facts()

    async def living(self, prefix: str, after: str) -> list[HypervisorFacts]:
        page = await self._provider.run(partial(state.LEDGER.page, prefix=prefix, after=after))
        return [thing.facts() for thing in page]

    async def machines_on(self, node: str) -> list[HypervisorFacts]:
        found = await self._provider.run(partial(state.machines_on, node=node))
        return [thing.facts() for thing in found]

    async def told(self, path: str) -> list[str]:
        """Returns the verbs carried out on an object, in order. For tests and audits."""
        return await self._provider.run(partial(state.LEDGER.verbs, path=path))

    async def effects(self, path: str) -> int:
        """Returns how many orders have changed the object."""
        return (await self._provider.run(partial(state.LEDGER.find, path=path))).effects
