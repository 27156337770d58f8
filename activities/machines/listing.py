"""What exists at the hypervisor: machines and their neighbours, each known by its path."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from activities.fence import OrderFence
from activities.machines.orders import HypervisorCalls
from activities.orphans import OrphanRemovingListing
from activities.retry import ProviderRetry
from domain.machines.ports import ABSENT, Hypervisor, state_expected_in_status
from domain.machines.tables import GONE_STATUSES, TABLES
from domain.model import Grant, ObjectView
from domain.orphans import NO_RECORD, ProviderObject, ProviderObjectKey
from domain.paths import kind_of

HYPERVISOR_NAME = "hypervisor"


class HypervisorListing(OrphanRemovingListing):
    """Lists what lives at the hypervisor, to find what has no record or another power state. It knows no accounts."""

    family = "machines"
    kinds = removes = tuple(kind for kind in TABLES if kind != "account")
    absence = "the hypervisor has it absent"
    instead = "the hypervisor keeps no spec to record: create it anew under its path, which takes over what is there"

    def __init__(self, hypervisor: Hypervisor, patience: ProviderRetry) -> None:
        self._hypervisor = hypervisor
        self._patience = patience

    async def list_providers(self, prefix: str) -> AsyncIterator[str]:
        yield HYPERVISOR_NAME

    def why_orphaned(self, thing: ProviderObject, record: ObjectView | None) -> str:
        """Returns the status of a record that is gone for good: nothing of it should live."""
        if record is None:
            return NO_RECORD
        return record.status if record.status in GONE_STATUSES else ""

    def describe_difference(self, thing: ProviderObject, record: ObjectView) -> str:
        wrong = _is_at_rest(record) and thing.state != state_expected_in_status(record.kind, record.status)
        return f"is {record.status}, but the hypervisor has it {thing.state}" if wrong else ""

    def must_have_thing(self, record: ObjectView) -> bool:
        return _is_at_rest(record) and state_expected_in_status(record.kind, record.status) != ABSENT

    async def remove_orphan(self, grant: Grant, right: OrderFence) -> str:
        return await HypervisorCalls(self._hypervisor, self._patience, grant, right).remove_object(grant.path, {})

    async def read_provider_page(
        self, provider: str, prefix: str, after: ProviderObjectKey
    ) -> Sequence[ProviderObject]:
        return [
            ProviderObject.known_by_path(HYPERVISOR_NAME, facts.path, facts.state, facts.epoch)
            for facts in await self._hypervisor.list_existing_objects(prefix, after[1])
        ]


def _is_at_rest(record: ObjectView) -> bool:
    return record.status not in TABLES[kind_of(record.path)].transitional_statuses
