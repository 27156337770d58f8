"""One region of a real cloud as a `Cloud` (`domain/ports.py`), and what the VMs of a tenant share in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from domain.errors import Rejected
from domain.ports import FIRST_VM, SharedResource, VmAnswer, VmFacts, VmKey, VmOrder
from providers.options import VmOptions
from providers.steps import PolledVms, why_unsupported

NO_KEY_NAME = "none"  # cloud id in place of a key


@dataclass(frozen=True, slots=True)
class LaunchNetwork:
    """The network, security groups and key of new VMs."""

    network: str
    groups: tuple[str, ...]
    key: str


class TenantResources(ABC):
    """Creates, finds and removes what each tenant's VMs share in one region.

    What the connection's options name is used as it is by all tenants, and never created or removed.
    """

    title: ClassVar[str]  # of the service, in messages
    network_option: ClassVar[str]  # the option that names a network

    def __init__(self, options: VmOptions) -> None:
        self._options = options
        self._known: dict[tuple[str, str, str, str], LaunchNetwork] = {}  # by tenant, network, groups and key

    async def prepare_resource(self, resource: SharedResource, made: Mapping[str, str]) -> str:
        """Creates a shared resource, or finds it. Returns its id; a key's is its name."""
        match resource.what:
            case "vnet":
                return self._options.existing_network or await self._make_vnet(resource)
            case "securityGroup":
                given = ",".join(self._options.security_groups)
                return given or await self._make_security_group(resource, made.get("vnet", ""))
            case "sshKey":
                if self._options.key_name:
                    return self._options.key_name
                return await self._make_key(resource) if self._options.public_key else NO_KEY_NAME
            case _:
                raise Rejected(f"{self.title} shares no {resource.what!r}")

    async def release_resource(self, resource: SharedResource) -> None:
        """Removes a shared resource, with duplicates left by lost answers. Ignores what is not ours or is gone."""
        removals = {"vnet": self._drop_vnet, "securityGroup": self._drop_security_group, "sshKey": self._drop_key}
        if resource.what not in removals:
            raise Rejected(f"{self.title} shares no {resource.what!r}")
        await removals[resource.what](resource)

    async def find_launch_network(self, tenant: str, network: Mapping[str, str]) -> LaunchNetwork:
        """Returns network, groups and key for a tenant's new VMs: its own, or those that the options name."""
        there, given = self._options.existing_network, ",".join(self._options.security_groups)
        vnet, groups = network.get("vnet") or there, network.get("securityGroup") or given
        key = network.get("sshKey") or self._options.key_name
        if not (vnet and groups):
            lacking = f"the connection's options name no {self.network_option}"
            raise Rejected(f"nothing is prepared for VMs in this region, and {lacking}")
        wanted = (tenant, vnet, groups, key)
        if wanted not in self._known:
            where = vnet if vnet == there else await self._find_network(tenant, vnet)
            if groups != given:
                await self._check_tenant_has_group(tenant, groups)
            if key not in ("", NO_KEY_NAME, self._options.key_name):
                await self._check_tenant_has_key(tenant, key)
            self._known[wanted] = LaunchNetwork(where, tuple(groups.split(",")), "" if key == NO_KEY_NAME else key)
        return self._known[wanted]

    @abstractmethod
    async def _make_vnet(self, resource: SharedResource) -> str: ...

    @abstractmethod
    async def _make_security_group(self, resource: SharedResource, vnet: str) -> str: ...

    @abstractmethod
    async def _make_key(self, resource: SharedResource) -> str: ...

    @abstractmethod
    async def _drop_vnet(self, resource: SharedResource) -> None: ...

    @abstractmethod
    async def _drop_security_group(self, resource: SharedResource) -> None: ...

    @abstractmethod
    async def _drop_key(self, resource: SharedResource) -> None: ...

    @abstractmethod
    async def _find_network(self, tenant: str, vnet: str) -> str:
        """Returns what VMs are launched in. Raises Rejected if the tenant has no such network."""

    @abstractmethod
    async def _check_tenant_has_group(self, tenant: str, group: str) -> None:
        """Raises Rejected if the tenant has no such group."""

    @abstractmethod
    async def _check_tenant_has_key(self, tenant: str, name: str) -> None:
        """Raises Rejected if the tenant has no such key."""


class RegionCloud(ABC):
    """VMs of one region. Refuses calls for other regions.

    A caller that times out or is cancelled waits until the call under way has ended.
    """

    csp: ClassVar[str]
    spec_title: ClassVar[str]  # what the cloud calls a spec
    orders_per_call = 50

    def __init__(self, region: str, options: VmOptions, network: TenantResources, vms: PolledVms[Any]) -> None:
        self.region = region
        self._options = options
        self._network = network
        self._vms = vms

    async def perform_orders(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        complaint = why_unsupported(self.csp, verb, len(orders), self.orders_per_call)
        if complaint := complaint or self._why_wrong_region(region):
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
        real_specs = {name: self._options.specs.get(name, name) for name in specs}
        real_images = {name: self._options.images.get(name, name) for name in images}
        offered = await self._list_offered_specs(set(real_specs.values())) if real_specs else set()
        there = await self._list_usable_images(set(real_images.values())) if real_images else set()
        absent = [
            f"{self.spec_title} {_name_with_alias(name, real)}"
            for name, real in real_specs.items()
            if real not in offered
        ]
        absent += [f"image {_name_with_alias(name, real)}" for name, real in real_images.items() if real not in there]
        return [f"{self.csp}/{region} has no {what}" for what in absent]

    async def prepare_resource(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        self._check_region(region)
        return await self._network.prepare_resource(resource, made)

    async def release_resource(self, region: str, resource: SharedResource) -> None:
        self._check_region(region)
        await self._network.release_resource(resource)

    @abstractmethod
    async def _list_offered_specs(self, wanted: Collection[str]) -> Collection[str]:
        """Returns specs that the region offers; those that are wanted are among them, if it does."""

    @abstractmethod
    async def _list_usable_images(self, wanted: Collection[str]) -> Collection[str]:
        """Returns images that can be used; those that are wanted are among them, if they can."""

    def _why_wrong_region(self, region: str) -> str:
        fits = region == self.region
        return "" if fits else f"this connection is for {self.csp}/{self.region}, not for {self.csp}/{region}"

    def _check_region(self, region: str) -> None:
        if complaint := self._why_wrong_region(region):
            raise Rejected(complaint)


def _name_with_alias(name: str, real: str) -> str:
    """Names a requested spec or image, and its translation by the connection's options."""
    return f"{real!r}" if name == real else f"{real!r} (in the spec: {name!r})"
