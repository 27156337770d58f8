"""What a tenant's VMs share in a region of OpenStack: a network with one subnet, a security group, a key pair.

None of these has a client token, and names of networks and groups are not unique. Each is searched by its name, which
carries hashes of its tenant and its token, before it is created: what belongs to another tenant is neither used nor
removed. What the connection's options name is used as it is by all tenants, and never created or removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.errors import Rejected, UnknownOutcome
from domain.ports import SharedResource
from providers.openstack.api import OpenStackApi
from providers.openstack.connection import OpenStackOptions
from providers.openstack.errors import Busy, CallRejected
from providers.openstack.servers import hash_of
from providers.options import IngressRule
from providers.regioncloud import TenantResources

NOT_FOUND = (400, 404)


class NovaTenantResources(TenantResources):
    """Creates, finds and removes what each tenant's VMs share in one region of OpenStack."""

    title = "OpenStack"
    network_option = "network"

    def __init__(self, api: OpenStackApi, options: OpenStackOptions, place: str) -> None:
        super().__init__(options)
        self._api = api
        self._options: OpenStackOptions = options
        self._place = place

    async def _drop_vnet(self, resource: SharedResource) -> None:
        """Removes a network with its subnets. Refuses one in use first, to remove nothing by half."""
        for each in await self._find_to_remove("networks", resource):
            network = each["id"]
            if used := await self._list("security-groups", description=_group_description(network)):
                raise Rejected(f"{network} is in use by the security group {used[0]['id']}")
            for subnet in await self._list("subnets", network_id=network):
                await self._api.delete("network", f"/subnets/{subnet['id']}")
            await self._api.delete("network", f"/networks/{network}")

    async def _drop_security_group(self, resource: SharedResource) -> None:
        for group in await self._find_to_remove("security-groups", resource):
            await self._api.delete("network", f"/security-groups/{group['id']}")

    async def _drop_key(self, resource: SharedResource) -> None:
        name = resource.cloud_id or self._name_of(resource)
        if self._is_of_tenant(name, resource.tenant):
            await self._api.delete("compute", f"/os-keypairs/{name}")

    async def _find_network(self, tenant: str, vnet: str) -> str:
        await self._check_owned("networks", "network", tenant, vnet)
        return vnet

    async def _check_tenant_has_group(self, tenant: str, group: str) -> None:
        await self._check_owned("security-groups", "security_group", tenant, group)

    async def _check_tenant_has_key(self, tenant: str, name: str) -> None:
        if not self._is_of_tenant(name, tenant):
            raise Rejected(f"there is no key {name} of {tenant}: it is another tenant's")

    async def _make_vnet(self, resource: SharedResource) -> str:
        name = self._name_of(resource)
        network = await self._find_or_make("networks", "network", {"name": name, "description": resource.tenant})
        version = 6 if ":" in self._options.cidr else 4
        wanted = {"name": name, "network_id": network, "cidr": self._options.cidr, "ip_version": version}
        await self._find_or_make("subnets", "subnet", wanted, network_id=network)
        return network

    async def _make_security_group(self, resource: SharedResource, vnet: str) -> str:
        """Creates a security group. Its description names the network, which is not removed before it."""
        if vnet != self._options.network:
            await self._check_owned("networks", "network", resource.tenant, vnet)
        wanted = {"name": self._name_of(resource), "description": _group_description(vnet)}
        group = await self._find_or_make("security-groups", "security_group", wanted)
        for rule in self._options.ingress:
            try:
                await self._api.post("network", "/security-group-rules", {"security_group_rule": _rule(group, rule)})
            except Busy:
                continue  # it is there
        return group

    async def _make_key(self, resource: SharedResource) -> str:
        """Imports the key; Nova's names of keys are unique, so there is one."""
        name = self._name_of(resource)
        try:
            body = {"keypair": {"name": name, "public_key": self._options.public_key}}
            await self._api.post("compute", "/os-keypairs", body)
        except Busy:
            pass  # it is there
        return name

    async def _find_or_make(self, what: str, kind: str, wanted: Mapping[str, Any], **more: str) -> str:
        """Finds a resource by its name or creates it. After a lost answer, looks once more."""

        async def find() -> str:
            found = await self._list(what, name=wanted["name"], **more)
            return min((str(each["id"]) for each in found), default="")

        if found := await find():
            return found
        try:
            return str((await self._api.post("network", f"/{what}", {kind: wanted}))[kind]["id"])
        except UnknownOutcome:
            if found := await find():
                return found
            raise

    async def _check_owned(self, what: str, kind: str, tenant: str, name: str) -> None:
        try:
            found = (await self._api.get("network", f"/{what}/{name}"))[kind]
        except CallRejected as error:
            if error.status not in NOT_FOUND:
                raise
            found = {"name": ""}
        if not self._is_of_tenant(found["name"], tenant):
            raise Rejected(f"there is no {kind} {name} of {tenant}: it was removed by hand, or is another tenant's")

    async def _find_to_remove(self, what: str, resource: SharedResource) -> list[Any]:
        """Lists a tenant's resource: by token, which also finds duplicates, or else by id."""
        if resource.token:
            return await self._list(what, name=self._name_of(resource))
        found = await self._list(what, id=resource.cloud_id)
        return [each for each in found if self._is_of_tenant(each["name"], resource.tenant)]

    async def _list(self, what: str, **filters: str) -> list[Any]:
        return await self._api.read_all_pages("network", f"/{what}", what.replace("-", "_"), **filters)

    def _name_of(self, resource: SharedResource) -> str:
        """Returns a name: the tenant, to be read, and the hashes by which it is found."""
        told = resource.tenant.replace(":", "-")[:100]
        return f"{self._options.owner[:60]}-{told}-{self._tenant_hash(resource.tenant)}-{hash_of(resource.token)}"

    def _tenant_hash(self, tenant: str) -> str:
        return hash_of(f"{self._place} {tenant}")

    def _is_of_tenant(self, name: str, tenant: str) -> bool:
        return name.split("-")[-2:-1] == [self._tenant_hash(tenant)]


def _group_description(network: str) -> str:
    return f"VMs in {network}"


def _rule(group: str, rule: IngressRule) -> dict[str, Any]:
    return {
        "security_group_id": group,
        "direction": "ingress",
        "ethertype": "IPv6" if ":" in rule.source else "IPv4",
        "protocol": rule.protocol,
        "port_range_min": rule.port,
        "port_range_max": rule.to_port or rule.port,
        "remote_ip_prefix": rule.source,
    }
