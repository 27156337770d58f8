"""One region of an OpenStack project as a `Cloud` (`domain/ports.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from math import inf

from domain.errors import format_count
from providers.openstack.api import OpenStackApi
from providers.openstack.connection import OpenStackConnection
from providers.openstack.credentials import describe_credentials_source, find_cloud
from providers.openstack.network import NovaTenantResources
from providers.openstack.vms import NovaVms
from providers.regioncloud import RegionCloud

IMAGES_VERSION = "2.1"  # Nova shows Glance's images up to 2.35, so no other service is needed


class OpenStackCloud(RegionCloud):
    """Servers of one region of a project. `call_seconds` is how long a caller waits for an order."""

    csp = "openstack"
    spec_title = "flavor"

    def __init__(self, connection: OpenStackConnection, call_seconds: float = inf) -> None:
        self._connection = connection
        place = f"{connection.options.owner}/{connection.region}"
        self._api = OpenStackApi(connection, call_seconds)
        network = NovaTenantResources(self._api, connection.options, place)
        self._servers = NovaVms(self._api, network, connection.options, place)
        super().__init__(connection.region, connection.options, network, self._servers)

    async def describe_credentials(self) -> str:
        """Returns where the credentials were found, never the credentials; raises Refused if there are none."""
        await asyncio.to_thread(find_cloud, self._connection, self._options.read_seconds)
        return describe_credentials_source(self._connection.credentials)

    async def check_credentials(self) -> str:
        """Checks the credentials with a harmless read. Returns a short text, or raises a ProviderError."""
        flavors = await self._api.read_all_pages("compute", "/flavors", "flavors")
        return f"Nova answers: {format_count(len(flavors), 'flavor')} in {self.region}"

    async def close(self) -> None:
        await self._api.close()

    async def _list_offered_specs(self, wanted: Collection[str]) -> Collection[str]:
        return await self._servers.list_flavors()

    async def _list_usable_images(self, wanted: Collection[str]) -> Collection[str]:
        found = await self._api.read_all_pages("compute", "/images/detail", "images", IMAGES_VERSION, status="ACTIVE")
        return {str(image["id"]) for image in found}
