"""One region of an OpenStack project as a `Cloud` (`domain/ports.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import inf

from domain.errors import Rejected
from domain.ports import FIRST_VM, SharedResource, VmAnswer, VmFacts, VmKey, VmOrder
from providers.openstack.api import OpenStackApi
from providers.openstack.connection import OpenStackConnection
from providers.openstack.credentials import describe_place, find_cloud
from providers.openstack.network import TenantResources
from providers.openstack.vms import NovaVms
from providers.steps import VERBS

IMAGES_VERSION = "2.1"  # Nova shows Glance's images up to 2.35, so no other service is needed


class OpenStackCloud:
    """Servers of one region of a project. Refuses calls for other regions.

    `call_seconds` is how long a caller waits for an order. A caller that times out or is cancelled waits until the call
    under way has ended.
    """

    orders_per_call = 50

    def __init__(self, connection: OpenStackConnection, call_seconds: float = inf) -> None:
        self.region = connection.region
        self._connection = connection
        self._options = connection.options
        place = f"{connection.options.owner}/{connection.region}"
        self._api = OpenStackApi(connection, call_seconds)
        self._network = TenantResources(self._api, connection.options, place)
        self._vms = NovaVms(self._api, self._network, connection.options, place)

    async def perform_orders(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        if complaint := self._why_unsupported(verb, region, orders):
            return [Rejected(complaint) for _ in orders]
        return await self._vms.perform_orders(verb, orders)

    async def describe_vms(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        self._check_region(region)
        return await self._vms.describe_vms(orders)

    async def list_tagged_vms(self, region: str, prefix: str, after: VmKey = FIRST_VM) -> list[VmFacts]:
        self._check_region(region)
        return await self._vms.list_tagged_vms(prefix, after)

    async def list_missing_offers(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        self._check_region(region)
        flavors = {name: self._options.specs.get(name, name) for name in specs}
        ids = {name: self._options.images.get(name, name) for name in images}
        offered = await self._vms.list_flavors() if flavors else {}
        there = await self._list_images() if ids else set()
        absent = [f"flavor {_name_with_alias(name, real)}" for name, real in flavors.items() if real not in offered]
        absent += [f"image {_name_with_alias(name, real)}" for name, real in ids.items() if real not in there]
        return [f"openstack/{region} has no {what}" for what in absent]

    async def prepare_resource(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        self._check_region(region)
        return await self._network.prepare_resource(resource, made)

    async def release_resource(self, region: str, resource: SharedResource) -> None:
        self._check_region(region)
        await self._network.release_resource(resource)

    async def describe_credentials(self) -> str:
        """Returns where the credentials were found, never the credentials; raises Refused if there are none."""
        await asyncio.to_thread(find_cloud, self._connection, self._options.read_seconds)
        return describe_place(self._connection.credentials)

    async def check_credentials(self) -> str:
        """Checks the credentials with a harmless read. Returns a short text, or raises a ProviderError."""
        flavors = await self._api.read_all_pages("compute", "/flavors", "flavors")
        return f"Nova answers: {len(flavors)} flavors in {self.region}"

    async def close(self) -> None:
        await self._api.close()

    async def _list_images(self) -> set[str]:
        found = await self._api.read_all_pages("compute", "/images/detail", "images", IMAGES_VERSION, status="ACTIVE")
        return {str(image["id"]) for image in found}

    def _check_region(self, region: str) -> None:
        if region != self.region:
            raise Rejected(f"this connection is for openstack/{self.region}, not for openstack/{region}")

    def _why_unsupported(self, verb: str, region: str, orders: Sequence[VmOrder]) -> str:
        if verb not in VERBS:
            return f"unknown verb {verb!r}: openstack knows {', '.join(VERBS)}"
        if region != self.region:
            return f"this connection is for openstack/{self.region}, not for openstack/{region}"
        if len(orders) > self.orders_per_call:
            return f"{len(orders)} VMs in one call are too many: openstack takes {self.orders_per_call}"
        return ""


def _name_with_alias(name: str, real: str) -> str:
    """Names a requested spec or image, and its translation by the connection's options."""
    return f"{real!r}" if name == real else f"{real!r} (in the spec: {name!r})"
