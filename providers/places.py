"""A cloud whose regions are served by different providers. A region that nobody serves is refused, never made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.errors import Rejected
from domain.ports import Answer, Cloud, Order, Resource, VmFacts


class ByRegion:
    """The clouds of a csp, by region."""

    def __init__(self, csp: str, regions: Mapping[str, Cloud]) -> None:
        self._csp = csp
        self._regions = regions
        self.bulk = min(cloud.bulk for cloud in regions.values())

    async def perform(self, verb: str, region: str, orders: Sequence[Order]) -> list[Answer]:
        try:
            cloud = self._at(region)
        except Rejected as error:
            return [error for _ in orders]
        return await cloud.perform(verb, region, orders)

    async def describe(self, region: str, orders: Sequence[Order]) -> list[VmFacts | None]:
        return await self._at(region).describe(region, orders)

    async def list_tagged(self, region: str, prefix: str) -> list[VmFacts]:
        return await self._at(region).list_tagged(region, prefix)

    async def validate(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        try:
            cloud = self._at(region)
        except Rejected as error:
            return [str(error)]
        return await cloud.validate(region, specs, images)

    async def prepare(self, region: str, resource: Resource, made: Mapping[str, str]) -> str:
        return await self._at(region).prepare(region, resource, made)

    async def release(self, region: str, resource: Resource) -> None:
        await self._at(region).release(region, resource)

    def _at(self, region: str) -> Cloud:
        if region not in self._regions:
            known = ", ".join(sorted(self._regions))
            raise Rejected(f"no connection leads to {self._csp}/{region}; the connections file has: {known}")
        return self._regions[region]
