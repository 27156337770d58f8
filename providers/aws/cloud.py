"""One region of an AWS account as a `Cloud` (`domain/ports.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from domain.errors import Rejected
from domain.ports import FIRST_VM, SharedResource, VmAnswer, VmFacts, VmKey, VmOrder
from providers.aws import tags
from providers.aws.connection import AwsConnection
from providers.aws.credentials import describe_credentials_source
from providers.aws.ec2 import Ec2Client
from providers.aws.network import TenantResources
from providers.aws.vms import Ec2VmOperator
from providers.steps import VERBS


class AwsCloud:
    """VMs of one EC2 region, which cost money. Refuses calls for other regions.

    `call_seconds` is how long a caller waits for an order. A caller that times out or is cancelled waits until the EC2
    call under way has ended.
    """

    orders_per_call = 50

    def __init__(self, connection: AwsConnection, call_seconds: float = inf) -> None:
        self.region = connection.region
        self._options = connection.options
        self._credentials = connection.credentials
        self._ec2 = Ec2Client(connection, call_seconds)
        self._network = TenantResources(self._ec2, connection.options)
        self._machines = Ec2VmOperator(self._ec2, self._network, connection.options)

    async def perform_orders(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        if complaint := self._why_unsupported(verb, region, orders):
            return [Rejected(complaint) for _ in orders]
        return await self._machines.perform_orders(verb, orders)

    async def describe_vms(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        self._check_region(region)
        return await self._machines.describe_vms(orders)

    async def list_tagged_vms(self, region: str, prefix: str, after: VmKey = FIRST_VM) -> list[VmFacts]:
        self._check_region(region)
        return await self._machines.list_tagged_vms(prefix, after)

    async def list_missing_offers(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        self._check_region(region)
        types = {name: self._options.specs.get(name, name) for name in specs}
        amis = {name: self._options.images.get(name, name) for name in images}
        offered, there = await self._list_offered_types(types.values()), await self._list_usable_images(amis.values())
        absent = [
            f"instance type {_format_translated_name(name, real)}"
            for name, real in types.items()
            if real not in offered
        ]
        absent += [f"image {_format_translated_name(name, real)}" for name, real in amis.items() if real not in there]
        return [f"aws/{region} has no {what}" for what in absent]

    async def prepare_resource(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        self._check_region(region)
        return await self._network.prepare_resource(resource, made)

    async def release_resource(self, region: str, resource: SharedResource) -> None:
        self._check_region(region)
        await self._network.release_resource(resource)

    async def describe_credentials(self) -> str:
        """Returns where the credentials were found, never the credentials; raises Refused if there are none."""
        return await asyncio.to_thread(describe_credentials_source, self._credentials, self.region)

    async def check_credentials(self) -> str:
        """Checks the credentials with a harmless EC2 read. Returns a short text, or raises a ProviderError."""
        zones = (await self._ec2.call_read_operation("describe_availability_zones"))["AvailabilityZones"]
        return f"EC2 answers: {len(zones)} zones in {self.region}"

    async def close(self) -> None:
        await self._ec2.close()

    async def _list_offered_types(self, types: Iterable[str]) -> set[str]:
        """Returns those instance types that the region offers."""
        if not (wanted := sorted(set(types))):
            return set()
        where = tags.ec2_filters({"instance-type": wanted})
        operation = "describe_instance_type_offerings"
        found = await self._ec2.read_all_pages(operation, "InstanceTypeOfferings", LocationType="region", Filters=where)
        return {each["InstanceType"] for each in found}

    async def _list_usable_images(self, images: Iterable[str]) -> set[str]:
        """Returns those images that are available; uses a filter, in which a malformed image id is no error."""
        if not (wanted := sorted(set(images))):
            return set()
        where = tags.ec2_filters({"image-id": wanted, "state": "available"})
        return {each["ImageId"] for each in await self._ec2.read_all_pages("describe_images", "Images", Filters=where)}

    def _check_region(self, region: str) -> None:
        if region != self.region:
            raise Rejected(f"this connection is for aws/{self.region}, not for aws/{region}")

    def _why_unsupported(self, verb: str, region: str, orders: Sequence[VmOrder]) -> str:
        if verb not in VERBS:
            return f"unknown verb {verb!r}: aws knows {', '.join(VERBS)}"
        if region != self.region:
            return f"this connection is for aws/{self.region}, not for aws/{region}"
        if len(orders) > self.orders_per_call:
            return f"{len(orders)} VMs in one call are too many: aws takes {self.orders_per_call}"
        return ""


def _format_translated_name(name: str, real: str) -> str:
    """Names a requested spec or image, and its translation by the connection's options."""
    return f"{real!r}" if name == real else f"{real!r} (in the spec: {name!r})"
