"""Routes calls by region to different providers.

A simulated and a real region of one name are two places: a real one is written `region@provider`. Places that this
worker does not serve are not touched, as their orders are for another worker. A region without a connection is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.errors import Rejected, Superseded
from domain.ports import FIRST_VM, Cloud, SharedResource, VmAnswer, VmFacts, VmKey, VmOrder
from domain.wire import SIMULATED, split_region_and_provider


class RegionRouter:
    """The clouds of a csp, by region. `simulated` serves all regions without a provider; `closed` to new VMs or not.

    VMs that were simulated before there was a connections file stay reachable, to be read and removed.
    """

    def __init__(
        self, csp: str, regions: Mapping[str, Cloud], simulated: Cloud | None = None, closed: bool = True
    ) -> None:
        self._csp = csp
        self._regions = regions
        self._simulated = simulated
        self._closed = closed
        self.orders_per_call = min(cloud.orders_per_call for cloud in (regions.values() or [simulated]) if cloud)

    async def perform_orders(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        try:
            cloud, name = self._cloud_of_region(region, making=verb == "create")
        except (Rejected, Superseded) as error:
            return [error for _ in orders]
        parts = [
            orders[first : first + cloud.orders_per_call] for first in range(0, len(orders), cloud.orders_per_call)
        ]
        return [answer for part in parts for answer in await cloud.perform_orders(verb, name, part)]

    async def describe_vms(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        cloud, name = self._cloud_of_region(region)
        return await cloud.describe_vms(name, orders)

    async def list_tagged_vms(self, region: str, prefix: str, after: VmKey = FIRST_VM) -> list[VmFacts]:
        cloud, name = self._cloud_of_region(region)
        return await cloud.list_tagged_vms(name, prefix, after)

    async def list_missing_offers(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        try:
            cloud, name = self._cloud_of_region(region, making=True)
        except Rejected as error:
            return [str(error)]
        return await cloud.list_missing_offers(name, specs, images)

    async def prepare_resource(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        cloud, name = self._cloud_of_region(region, making=True)
        return await cloud.prepare_resource(name, resource, made)

    async def release_resource(self, region: str, resource: SharedResource) -> None:
        cloud, name = self._cloud_of_region(region)
        await cloud.release_resource(name, resource)

    def _cloud_of_region(self, region: str, making: bool = False) -> tuple[Cloud, str]:
        """Returns the cloud that serves a region, and the region's name there."""
        name, provider = split_region_and_provider(region)
        if cloud := self._regions.get(region):
            return cloud, name
        if provider != SIMULATED:
            raise Superseded(f"{self._csp}/{name} of {provider} is not served by this worker: it lacks that connection")
        if self._simulated is None or (making and self._closed):
            known = ", ".join(sorted(self._regions))
            raise Rejected(f"no connection leads to {self._csp}/{name}; the connections file has: {known}")
        return self._simulated, name
