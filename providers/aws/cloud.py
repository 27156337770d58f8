"""One region of an AWS account as a `Cloud` (`domain/ports.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from math import inf

from domain.errors import format_count
from providers.aws import tags
from providers.aws.connection import AwsConnection
from providers.aws.credentials import describe_credentials_source
from providers.aws.ec2 import Ec2Client
from providers.aws.network import Ec2TenantResources
from providers.aws.vms import Ec2VmOperator
from providers.regioncloud import RegionCloud


class AwsCloud(RegionCloud):
    """VMs of one EC2 region, which cost money. `call_seconds` is how long a caller waits for an order."""

    csp = "aws"
    spec_title = "instance type"

    def __init__(self, connection: AwsConnection, call_seconds: float = inf) -> None:
        self._credentials = connection.credentials
        self._ec2 = Ec2Client(connection, call_seconds)
        network = Ec2TenantResources(self._ec2, connection.options)
        vms = Ec2VmOperator(self._ec2, network, connection.options)
        super().__init__(connection.region, connection.options, network, vms)

    async def describe_credentials(self) -> str:
        """Returns where the credentials were found, never the credentials; raises Refused if there are none."""
        return await asyncio.to_thread(describe_credentials_source, self._credentials, self.region)

    async def check_credentials(self) -> str:
        """Checks the credentials with a harmless EC2 read. Returns a short text, or raises a ProviderError."""
        zones = (await self._ec2.call_read_operation("describe_availability_zones"))["AvailabilityZones"]
        return f"EC2 answers: {format_count(len(zones), 'zone')} in {self.region}"

    async def close(self) -> None:
        await self._ec2.close()

    async def _list_offered_specs(self, wanted: Collection[str]) -> Collection[str]:
        where = tags.ec2_filters({"instance-type": sorted(wanted)})
        operation = "describe_instance_type_offerings"
        found = await self._ec2.read_all_pages(operation, "InstanceTypeOfferings", LocationType="region", Filters=where)
        return {each["InstanceType"] for each in found}

    async def _list_usable_images(self, wanted: Collection[str]) -> Collection[str]:
        """By a filter, in which a malformed image id is no error."""
        where = tags.ec2_filters({"image-id": sorted(wanted), "state": "available"})
        return {each["ImageId"] for each in await self._ec2.read_all_pages("describe_images", "Images", Filters=where)}
