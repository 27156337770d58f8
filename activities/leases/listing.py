"""The hosts that are in the hands of reservations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from activities.fence import OrderFence
from activities.orphans import OrphanRemovingListing
from activities.retry import ProviderRetry
from domain.errors import format_count
from domain.leases.messages import HeldHostRegister
from domain.model import Grant
from domain.orphans import ProviderObject, ProviderObjectKey, begin_time_of_epoch

SITE_NAME = "hosts"


class TenancyListing(OrphanRemovingListing):
    """Lists the hosts that reservations hold, to find those of no record; `LeaseAudit` checks what reservations on
    record hold.
    """

    family = "leases"
    kinds = removes = ("reservation",)
    instead = "a host is booked with its lease, never after it: take it back, and create a lease anew"

    def __init__(self, tenants: HeldHostRegister, patience: ProviderRetry) -> None:
        self._tenants = tenants
        self._patience = patience

    async def list_providers(self, prefix: str) -> AsyncIterator[str]:
        yield SITE_NAME

    async def remove_orphan(self, grant: Grant, right: OrderFence) -> str:
        order = partial(self._tenants.take_back_hosts, grant.path, grant.epoch)
        returned = await self._patience.call_with_retry(partial(right.prove_then_call, order))
        return f"taken back: {format_count(returned, 'host')}" if returned else "it holds no host any more"

    async def read_provider_page(
        self, provider: str, prefix: str, after: ProviderObjectKey
    ) -> Sequence[ProviderObject]:
        return [
            ProviderObject(
                tenant.reservation, SITE_NAME, tenant.host, "held", tenant.token, begin_time_of_epoch(tenant.generation)
            )
            for tenant in await self._tenants.list_existing_objects(prefix, after[1:])
        ]
