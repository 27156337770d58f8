"""What a tenant's VMs share in a region of AWS: a VPC with one subnet, a security group, an SSH key.

EC2 has no client tokens for these, so each is searched by its tags before it is created. The tags name the tenant, and
every search asks for it: what belongs to another tenant is neither used nor removed. Resources that the connection's
options name are used as they are by all tenants, and never created or removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from domain.errors import Rejected, UnknownOutcome
from domain.ports import SharedResource
from providers.aws import tags
from providers.aws.connection import AwsOptions
from providers.aws.ec2 import Ec2Client
from providers.aws.errors import Ec2CallRejected
from providers.options import IngressRule
from providers.regioncloud import TenantResources

ANY_ADDRESS = "0.0.0.0/0"
DETACH_SECONDS = 5  # times `lag_seconds`: how long a terminated VM may block what it used

T = TypeVar("T")


class _Sort(NamedTuple):
    """A sort of resources: how EC2 lists them, and where an answer has the list and their ids."""

    operation: str
    key: str
    id: str


VPCS = _Sort("describe_vpcs", "Vpcs", "VpcId")
SUBNETS = _Sort("describe_subnets", "Subnets", "SubnetId")
GROUPS = _Sort("describe_security_groups", "SecurityGroups", "GroupId")
GATEWAYS = _Sort("describe_internet_gateways", "InternetGateways", "InternetGatewayId")


class Ec2TenantResources(TenantResources):
    """Creates, finds and removes what each tenant's VMs share in one region of EC2."""

    title = "EC2"
    network_option = "subnet"

    def __init__(self, ec2: Ec2Client, options: AwsOptions) -> None:
        super().__init__(options)
        self._ec2 = ec2
        self._options: AwsOptions = options

    async def _find_network(self, tenant: str, vpc: str) -> str:
        find = partial(self._find_id, SUBNETS, {"vpc-id": vpc, tags.TENANT_TAG: tenant})
        return await self._find_tenant_resource(find, f"subnet of {tenant} in {vpc}")

    async def _check_tenant_has_group(self, tenant: str, group: str) -> None:
        find = partial(self._find_id, GROUPS, {"group-id": group, tags.TENANT_TAG: tenant})
        await self._find_tenant_resource(find, f"security group {group} of {tenant}")

    async def _check_tenant_has_key(self, tenant: str, name: str) -> None:
        async def find() -> str:
            return name if name in {pair["KeyName"] for pair in await self._list_key_pairs(tenant)} else ""

        await self._find_tenant_resource(find, f"key {name} of {tenant}")

    async def _find_tenant_resource(self, find: Callable[[], Awaitable[str]], what: str) -> str:
        """Finds what a tenant uses; searches for as long as reads may lag."""
        try:
            return await self._wait_until_visible(find, what)
        except UnknownOutcome as error:
            raise Rejected(f"there is no {what}: it was removed by hand, or is another tenant's") from error

    async def _make_vnet(self, resource: SharedResource) -> str:
        owned = tags.shared_resource_tags(self._options.owner, resource)

        async def make() -> str:
            made = await self._ec2.call_change_operation(
                "create_vpc", CidrBlock=self._options.cidr, TagSpecifications=tags.tag_specifications(owned, "vpc")
            )
            return str(made["Vpc"]["VpcId"])

        vpc = await self._find_or_make(partial(self._find_id, VPCS, _token_and_tenant_tags(resource)), make)
        await self._make_subnet(vpc, owned)
        if self._options.public_addresses:
            await self._attach_gateway(vpc, owned)
        return vpc

    async def _make_subnet(self, vpc: str, owned: tags.Tags) -> None:
        async def make() -> str:
            zone = {"AvailabilityZone": self._options.zone} if self._options.zone else {}
            specification = tags.tag_specifications(owned, "subnet")
            made = await self._call_until_visible(
                "create_subnet", VpcId=vpc, CidrBlock=self._options.cidr, TagSpecifications=specification, **zone
            )
            return str(made["Subnet"]["SubnetId"])

        subnet = await self._find_or_make(partial(self._find_id, SUBNETS, {"vpc-id": vpc}), make)
        public = {"Value": self._options.public_addresses}
        await self._call_until_visible("modify_subnet_attribute", SubnetId=subnet, MapPublicIpOnLaunch=public)

    async def _attach_gateway(self, vpc: str, owned: tags.Tags) -> None:
        """Creates and attaches an internet gateway; public addresses need one."""

        async def make() -> str:
            specification = tags.tag_specifications(owned, "internet-gateway")
            made = await self._ec2.call_change_operation("create_internet_gateway", TagSpecifications=specification)
            return str(made["InternetGateway"]["InternetGatewayId"])

        find = partial(self._find_id, GATEWAYS, {tags.TOKEN_TAG: owned[tags.TOKEN_TAG]})
        gateway = await self._find_or_make(find, make)
        attach = self._call_until_visible("attach_internet_gateway", InternetGatewayId=gateway, VpcId=vpc)
        await _call_ignoring_code(attach, "Resource.AlreadyAssociated")
        main = {"vpc-id": vpc, "association.main": "true"}
        [table] = (await self._ec2.call_read_operation("describe_route_tables", Filters=tags.ec2_filters(main)))[
            "RouteTables"
        ]
        if not any(route.get("GatewayId") == gateway for route in table["Routes"]):
            way = {"DestinationCidrBlock": ANY_ADDRESS, "GatewayId": gateway}
            route = self._call_until_visible("create_route", RouteTableId=table["RouteTableId"], **way)
            await _call_ignoring_code(route, "RouteAlreadyExists")

    async def _make_security_group(self, resource: SharedResource, vnet: str) -> str:
        """Creates a security group; its name is unique in a VPC, so EC2 prevents duplicates."""
        vpc = await self._vpc_of_vnet(resource.tenant, vnet)
        name, owned = self._name_and_tags(resource)
        find = partial(self._find_id, GROUPS, {"vpc-id": vpc, **_token_and_tenant_tags(resource)})

        async def make() -> str:
            specification = tags.tag_specifications(owned, "security-group")
            told = {"Description": f"VMs of {resource.tenant}", "VpcId": vpc, "TagSpecifications": specification}
            await _call_ignoring_code(
                self._call_until_visible("create_security_group", GroupName=name, **told), "InvalidGroup.Duplicate"
            )
            return await self._wait_until_visible(find, f"the security group {name}")

        group = await self._find_or_make(find, make)
        for rule in self._options.ingress:  # one by one: EC2 adds none if one of them exists
            allow = self._call_until_visible(
                "authorize_security_group_ingress", GroupId=group, IpPermissions=[_ingress_permission(rule)]
            )
            await _call_ignoring_code(allow, "InvalidPermission.Duplicate")
        return group

    async def _make_key(self, resource: SharedResource) -> str:
        name, owned = self._name_and_tags(resource)
        imported = self._ec2.call_change_operation(
            "import_key_pair",
            KeyName=name,
            PublicKeyMaterial=self._options.public_key.encode(),
            TagSpecifications=tags.tag_specifications(owned, "key-pair"),
        )
        await _call_ignoring_code(imported, "InvalidKeyPair.Duplicate")
        return name

    async def _drop_vnet(self, resource: SharedResource) -> None:
        for vpc in await self._list_ids(VPCS, self._tenant_resource_filter(resource, "vpc-id")):
            await self._drop_vpc(vpc)
        # An unattached gateway is found by its token only.
        for gateway in await self._list_ids(GATEWAYS, _token_and_tenant_tags(resource)):
            await self._remove_resource("delete_internet_gateway", InternetGatewayId=gateway)

    async def _drop_vpc(self, vpc: str) -> None:
        """Removes a VPC with its subnets and gateways. Refuses one in use first, to remove nothing by half."""
        where = tags.ec2_filters({"vpc-id": vpc})
        groups = await self._ec2.read_all_pages("describe_security_groups", "SecurityGroups", Filters=where)
        if used := [group["GroupId"] for group in groups if group["GroupName"] != "default"]:  # belongs to the VPC
            raise Rejected(f"{vpc} is in use by the security group {used[0]}")
        for subnet in await self._list_ids(SUBNETS, {"vpc-id": vpc}):
            await self._remove_resource("delete_subnet", SubnetId=subnet)
        for gateway in await self._list_ids(GATEWAYS, {"attachment.vpc-id": vpc}):
            await self._remove_resource("detach_internet_gateway", VpcId=vpc, InternetGatewayId=gateway)
            await self._remove_resource("delete_internet_gateway", InternetGatewayId=gateway)
        await self._remove_resource("delete_vpc", VpcId=vpc)

    async def _drop_security_group(self, resource: SharedResource) -> None:
        for group in await self._list_ids(GROUPS, self._tenant_resource_filter(resource, "group-id")):
            await self._remove_resource("delete_security_group", GroupId=group)

    async def _drop_key(self, resource: SharedResource) -> None:
        for pair in await self._list_key_pairs(resource.tenant):
            if tags.parse_tags(pair).get(tags.TOKEN_TAG) == resource.token or pair["KeyName"] == resource.cloud_id:
                await self._remove_resource("delete_key_pair", KeyName=pair["KeyName"])

    async def _remove_resource(self, operation: str, **arguments: str) -> None:
        """Removes a resource; one that is gone counts as removed. Retries while a terminated VM still uses it."""
        deadline = _monotonic() + self._options.lag_seconds * DETACH_SECONDS
        while True:
            try:
                await self._ec2.call_change_operation(operation, **arguments)
            except Ec2CallRejected as error:
                if error.is_not_found:
                    return
                if error.code != "DependencyViolation" or _monotonic() > deadline:
                    raise
            else:
                return
            await asyncio.sleep(min(self._options.poll_seconds, 1.0))

    async def _call_until_visible(self, operation: str, **arguments: Any) -> Any:
        return await self._ec2.call_until_visible(operation, self._options.lag_seconds, **arguments)

    async def _find_or_make(self, find: Callable[[], Awaitable[str]], make: Callable[[], Awaitable[str]]) -> str:
        """Finds a resource or creates it. After a lost answer, searches it for as long as reads may lag."""
        if found := await find():
            return found
        try:
            return await make()
        except UnknownOutcome as error:
            return await self._wait_until_visible(find, str(error))

    async def _wait_until_visible(self, find: Callable[[], Awaitable[str]], what: str) -> str:
        deadline = _monotonic() + self._options.lag_seconds
        while not (found := await find()):
            if _monotonic() > deadline:
                raise UnknownOutcome(f"not to be seen after {self._options.lag_seconds:g} s: {what}")
            await asyncio.sleep(min(self._options.poll_seconds, 1.0))
        return found

    async def _vpc_of_vnet(self, tenant: str, vnet: str) -> str:
        """Returns the VPC of a vnet: the tenant's own, or that of the subnet that the options name."""
        if not vnet.startswith("subnet-"):
            await self._find_network(tenant, vnet)
            return vnet
        found = await self._ec2.read_all_pages(
            "describe_subnets", "Subnets", Filters=tags.ec2_filters({"subnet-id": vnet})
        )
        if not found:
            raise Rejected(f"there is no subnet {vnet} in this region")
        return str(found[0]["VpcId"])

    async def _list_key_pairs(self, tenant: str) -> list[Any]:
        """Returns a tenant's key pairs; EC2 does not page them."""
        wanted = tags.ec2_filters(
            {tags.OWNER_TAG: self._options.owner, tags.TENANT_TAG: tenant, tags.SHARED_TAG: "sshKey"}
        )
        found: list[Any] = (await self._ec2.call_read_operation("describe_key_pairs", Filters=wanted))["KeyPairs"]
        return found

    async def _find_id(self, sort: _Sort, wanted: Mapping[str, str]) -> str:
        """Returns the id of our resource with these properties, always the same one of several; empty if none."""
        return min(await self._list_ids(sort, wanted), default="")

    async def _list_ids(self, sort: _Sort, wanted: Mapping[str, str]) -> list[str]:
        where = tags.ec2_filters({tags.OWNER_TAG: self._options.owner, **wanted})
        return [each[sort.id] for each in await self._ec2.read_all_pages(sort.operation, sort.key, Filters=where)]

    def _tenant_resource_filter(self, resource: SharedResource, field: str) -> dict[str, str]:
        """Returns the filter for a tenant's resource: by token, which also finds duplicates, or else by id."""
        if resource.token:
            return _token_and_tenant_tags(resource)
        return {field: resource.cloud_id, tags.TENANT_TAG: resource.tenant}

    def _name_and_tags(self, resource: SharedResource) -> tuple[str, tags.Tags]:
        owner = self._options.owner
        return tags.shared_resource_name(owner, resource), tags.shared_resource_tags(owner, resource)


def _token_and_tenant_tags(resource: SharedResource) -> dict[str, str]:
    return {tags.TOKEN_TAG: resource.token, tags.TENANT_TAG: resource.tenant}


async def _call_ignoring_code(call: Awaitable[T], code: str) -> T | None:
    """Awaits the call; returns None if EC2 answers with this code, which says that it was done before."""
    try:
        return await call
    except Ec2CallRejected as error:
        if error.code != code:
            raise
        return None


def _ingress_permission(rule: IngressRule) -> dict[str, Any]:
    """Returns an ingress rule in EC2's form; IPv6 has fields of its own."""
    kind, field = ("Ipv6Ranges", "CidrIpv6") if ":" in rule.source else ("IpRanges", "CidrIp")
    last = rule.to_port or rule.port
    return {"IpProtocol": rule.protocol, "FromPort": rule.port, "ToPort": last, kind: [{field: rule.source}]}


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
