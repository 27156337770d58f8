"""Calls to Nova and Neutron in one region, through openstacksdk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from math import inf
from typing import Any

from domain.errors import Rejected
from providers.openstack.connection import OpenStackConnection
from providers.openstack.credentials import find_cloud, list_secrets
from providers.openstack.errors import CallRejected, translate_answer, translate_error
from providers.threads import SdkClient

THREADS_PER_REGION = 24  # at least the region's VMs in flight, and a few reads
CONNECTION_POOLS = 10  # kept, one for each address; what `requests` has by itself
PAGE_SIZE = 1_000
MICROVERSIONS = {"compute": "2.26"}  # descriptions came with 2.19, and are all we need of it


class OpenStackApi(SdkClient):
    """The services' APIs in one region. Never retries: its callers decide.

    A socket's timeout bounds each call, well below the `call_seconds` of a whole order.
    """

    def __init__(self, connection: OpenStackConnection, call_seconds: float = inf) -> None:
        self._connection = connection
        self._read_seconds = min(connection.options.read_seconds, call_seconds / 2)
        super().__init__(THREADS_PER_REGION, f"openstack-{connection.region}", self._read_seconds)

    async def get(self, service: str, path: str, version: str = "", **params: Any) -> Any:
        return await self._call(service, "GET", path, {"params": params}, version)

    async def post(self, service: str, path: str, body: Mapping[str, Any]) -> Any:
        return await self._call(service, "POST", path, {"json": body})

    async def put(self, service: str, path: str, body: Mapping[str, Any]) -> Any:
        return await self._call(service, "PUT", path, {"json": body})

    async def delete(self, service: str, path: str) -> None:
        """Removes a resource; one that is gone counts as removed."""
        try:
            await self._call(service, "DELETE", path, {})
        except CallRejected as error:
            if error.status != 404:
                raise

    async def iterate_pages(
        self, service: str, path: str, key: str, version: str = "", **params: Any
    ) -> AsyncIterator[list[Any]]:
        """Yields the results of a list call, page by page."""
        marker: dict[str, str] = {}
        while True:
            answer = await self.get(service, path, version, limit=PAGE_SIZE, **params, **marker)
            yield answer[key]
            links = answer.get(f"{key}_links") or []
            if not answer[key] or all(link["rel"] != "next" for link in links):  # Neutron also links backwards
                return
            marker = {"marker": answer[key][-1]["id"]}

    async def read_all_pages(self, service: str, path: str, key: str, version: str = "", **params: Any) -> list[Any]:
        pages = self.iterate_pages(service, path, key, version, **params)
        return [each async for page in pages for each in page]

    async def _call(self, service: str, method: str, path: str, more: dict[str, Any], version: str = "") -> Any:
        return await self._run(self._call_in_thread, service, method, path, more, version)

    def _call_in_thread(self, service: str, method: str, path: str, more: dict[str, Any], version: str) -> Any:
        changing = method != "GET"
        try:
            client = getattr(self._connected_client(), service)
            wanted = version or MICROVERSIONS.get(service)
            answer = client.request(path, method, microversion=wanted, raise_exc=False, **more)
        except Rejected:
            raise
        except Exception as error:
            known = translate_error(error, changing, self._secrets)
            if known is None:
                raise
            raise known from None  # the original error contains the request with its token
        if trouble := translate_answer(answer, changing, self._secrets):
            raise trouble
        return answer.json() if answer.content else None

    def _connect(self) -> Any:
        from openstack.connection import Connection
        from requests.adapters import HTTPAdapter

        found = find_cloud(self._connection, self._read_seconds)
        self._secrets = list_secrets(found)
        cloud = Connection(config=found)
        for adapter in cloud.session.session.adapters.values():
            if isinstance(adapter, HTTPAdapter):
                # One connection for each thread: what is more than the usual ten is thrown away after each call.
                adapter.init_poolmanager(CONNECTION_POOLS, THREADS_PER_REGION)
        return cloud
