"""The simulated hypervisor: a ledger of machines, disks, images and nodes behind a `SimulatedProvider`."""

from __future__ import annotations

from functools import partial

from domain.machines.ports import HypervisorFacts, HypervisorOrder
from domain.ports import TransactionRunner
from providers.machines import state
from providers.simulated.provider import SimulatedProvider

PROVIDER_NAME = "hypervisor"  # its csp in the fault script; the regions are kinds of objects


class SimulatedHypervisor:
    """Hypervisor stored in a database. `latency` is seconds per order, `jitter` a fraction of it either way."""

    def __init__(self, database: TransactionRunner, *, latency: float = 0.0, jitter: float = 0.0) -> None:
        self._provider = SimulatedProvider(PROVIDER_NAME, database, latency=latency, jitter=jitter)

    async def perform_order(self, verb: str, order: HypervisorOrder) -> HypervisorFacts:
        work = partial(state.carry_out_order, verb=verb, order=order)
        return await self._provider.perform_call(verb, order.kind, [order.path], work)

    async def describe_object(self, path: str) -> HypervisorFacts:
        find = partial(state.HYPERVISOR_LEDGER.find_object, path=path)
        return (await self._provider.perform_call("describe", path.split(":")[-2], [path], find)).to_facts()

    async def list_existing_objects(self, prefix: str, after: str) -> list[HypervisorFacts]:
        page = await self._provider.run_transaction(
            partial(state.HYPERVISOR_LEDGER.read_page, prefix=prefix, after=after)
        )
        return [thing.to_facts() for thing in page]

    async def list_machines_on(self, node: str) -> list[HypervisorFacts]:
        found = await self._provider.run_transaction(partial(state.read_machines_on, node=node))
        return [thing.to_facts() for thing in found]

    async def list_carried_out_verbs(self, path: str) -> list[str]:
        """Returns the verbs carried out on an object, in order. For tests and audits."""
        return await self._provider.run_transaction(partial(state.HYPERVISOR_LEDGER.list_carried_out_verbs, path=path))

    async def count_effective_orders(self, path: str) -> int:
        """Returns how many orders have changed the object."""
        return (await self._provider.run_transaction(partial(state.HYPERVISOR_LEDGER.find_object, path=path))).effects
