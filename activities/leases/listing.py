"""The hosts that are in the hands of reservations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from activities.fence import OrderRight
from activities.orphans import LivingPage, RemovingListing, paged
from activities.retry import ProviderRetry
from domain.leases.messages import Tenants
from domain.model import Grant
from domain.orphans import LivingThing, ThingKey, begun_at

SITE = "hosts"


class TenantListing(RemovingListing):
    """I3 for this family, as far as no record is concerned; `LeaseAudit` checks what reservations on record hold."""

    family = "leases"
    kinds = removes = ("reservation",)
    instead = "a host is booked with its lease, never after it: take it back, and create a lease anew"

    def __init__(self, tenants: Tenants, patience: ProviderRetry) -> None:
        self._tenants = tenants
        self._patience = patience

    def living(self, prefix: str, after: ThingKey) -> AsyncIterator[LivingPage]:
        return paged(SITE, partial(self._page, prefix), after)

    async def remove(self, grant: Grant, right: OrderRight) -> str:
        order = partial(self._tenants.take_back, grant.path, grant.epoch)
        returned = await self._patience.call_with_retry(partial(right.order, order))
        return f"{returned} hosts were taken back" if returned else "it holds no host any more"

    async def _page(self, prefix: str, after: ThingKey) -> Sequence[LivingThing]:
        return [
            LivingThing(each.reservation, SITE, each.host, "held", each.token, begun_at(each.generation))
            for each in await self._tenants.living(prefix, after[1:])
        ]
