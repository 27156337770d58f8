"""What exists at the hypervisor: machines and their neighbours, each known by its path."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from activities.fence import OrderRight
from activities.machines.orders import HypervisorCalls
from activities.orphans import LivingPage, RemovingListing, paged
from activities.retry import ProviderRetry
from domain.machines.ports import ABSENT, Hypervisor, expected
from domain.machines.tables import GONE, TABLES
from domain.model import Grant, ObjectView
from domain.orphans import NO_RECORD, LivingThing, ThingKey, begun_at
from domain.paths import kind_of

HYPERVISOR = "hypervisor"


class HypervisorListing(RemovingListing):
    """I3 and I7 for this family. Of accounts the hypervisor knows nothing."""

    family = "machines"
    kinds = removes = tuple(kind for kind in TABLES if kind != "account")
    absence = "the hypervisor has it absent"
    instead = "the hypervisor keeps no spec to record: create it anew under its path, which takes over what is there"

    def __init__(self, hypervisor: Hypervisor, patience: ProviderRetry) -> None:
        self._hypervisor = hypervisor
        self._patience = patience

    def living(self, prefix: str, after: ThingKey) -> AsyncIterator[LivingPage]:
        return paged(HYPERVISOR, partial(self._page, prefix), after)

    def unclaimed(self, thing: LivingThing, record: ObjectView | None) -> str:
        """A record that is gone for good leaves its name to whatever comes next: nothing of it should live."""
        if record is None:
            return NO_RECORD
        return record.status if record.status in GONE else ""

    def difference(self, thing: LivingThing, record: ObjectView) -> str:
        wrong = _at_rest(record) and thing.state != expected(record.kind, record.status)
        return f"is {record.status}, but the hypervisor has it {thing.state}" if wrong else ""

    def must_live(self, record: ObjectView) -> bool:
        return _at_rest(record) and expected(record.kind, record.status) != ABSENT

    async def remove(self, grant: Grant, right: OrderRight) -> str:
        return await HypervisorCalls(self._hypervisor, self._patience, grant, right).remove(grant.path, {})

    async def _page(self, prefix: str, after: ThingKey) -> Sequence[LivingThing]:
        found = await self._hypervisor.living(prefix, after[1])
        return [
            LivingThing(facts.path, HYPERVISOR, facts.path, facts.state, str(facts.epoch or ""), begun_at(facts.epoch))
            for facts in found
        ]


def _at_rest(record: ObjectView) -> bool:
    return record.status not in TABLES[kind_of(record.path)].transitional
