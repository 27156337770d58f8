"""One region of an AWS account as a `Cloud` (`domain/ports.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from domain.errors import Rejected
from domain.ports import SharedResource, VmAnswer, VmFacts, VmOrder
from providers.aws import tags
from providers.aws.connection import AwsConnection
from providers.aws.credentials import describe_source
from providers.aws.ec2 import Ec2
from providers.aws.instances import VERBS
from providers.aws.network import Network
from providers.aws.vms import Ec2Vms


class AwsCloud:
    """VMs of one EC2 region, which cost money. Refuses calls for other regions.

    `call_seconds` is how long a caller waits for an order. A caller that times out or is cancelled waits until the EC2
    call under way has ended.
    """

    bulk = 50

    def __init__(self, connection: AwsConnection, call_seconds: float = inf) -> None:
        self.region = connection.region
        self._options = connection.options
        self._credentials = connection.credentials
        self._ec2 = Ec2(connection, call_seconds)
        self._network = Network(self._ec2, connection.options)
        self._machines = Ec2Vms(self._ec2, self._network, connection.options)

    async def perform(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        if complaint := self._complaint(verb, region, orders):
            return [Rejected(complaint) for _ in orders]
        return await self._machines.perform(verb, orders)

    async def describe(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        self._check(region)
        return await self._machines.describe(orders)

    async def list_tagged(self, region: str, prefix: str) -> list[VmFacts]:
        """Lists our VMs at or below a path; EC2 lists terminated VMs for about an hour."""
        self._check(region)
        return await self._machines.tagged(prefix)

    async def validate(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        self._check(region)
        types = {name: self._options.specs.get(name, name) for name in specs}
        amis = {name: self._options.images.get(name, name) for name in images}
        offered, there = await self._offered(types.values()), await self._available(amis.values())
        absent = [f"instance type {_told(name, real)}" for name, real in types.items() if real not in offered]
        absent += [f"image {_told(name, real)}" for name, real in amis.items() if real not in there]
        return [f"aws/{region} has no {what}" for what in absent]

    async def prepare(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        self._check(region)
        return await self._network.prepare(resource, made)

    async def release(self, region: str, resource: SharedResource) -> None:
        self._check(region)
        await self._network.release(resource)

    async def credentials(self) -> str:
        """Returns where the credentials were found, never the credentials; raises Refused if there are none."""
        return await asyncio.to_thread(describe_source, self._credentials, self.region)

    async def check(self) -> str:
        """Checks the credentials with a harmless EC2 read. Returns a short text, or raises a ProviderError."""
        zones = (await self._ec2.read("describe_availability_zones"))["AvailabilityZones"]
        return f"EC2 answers: {len(zones)} zones in {self.region}"

    async def close(self) -> None:
        await self._ec2.close()

    async def _offered(self, types: Iterable[str]) -> set[str]:
        """Returns those instance types that the region offers."""
        if not (wanted := sorted(set(types))):
            return set()
        where = tags.where({"instance-type": wanted})
        operation = "describe_instance_type_offerings"
        found = await self._ec2.every(operation, "InstanceTypeOfferings", LocationType="region", Filters=where)
        return {each["InstanceType"] for each in found}

    async def _available(self, images: Iterable[str]) -> set[str]:
        """Returns those images that are available; uses a filter, in which a malformed image id is no error."""
        if not (wanted := sorted(set(images))):
            return set()
        where = tags.where({"image-id": wanted, "state": "available"})
        return {each["ImageId"] for each in await self._ec2.every("describe_images", "Images", Filters=where)}

    def _check(self, region: str) -> None:
        if region != self.region:
            raise Rejected(f"this connection is for aws/{self.region}, not for aws/{region}")

    def _complaint(self, verb: str, region: str, orders: Sequence[VmOrder]) -> str:
        if verb not in VERBS:
            return f"unknown verb {verb!r}: aws knows {', '.join(VERBS)}"
        if region != self.region:
            return f"this connection is for aws/{self.region}, not for aws/{region}"
        if len(orders) > self.bulk:
            return f"{len(orders)} VMs in one call are too many: aws takes {self.bulk}"
        return ""


def _told(name: str, real: str) -> str:
    """Names a requested spec or image, and its translation by the connection's options."""
    return f"{real!r}" if name == real else f"{real!r} (in the spec: {name!r})"
