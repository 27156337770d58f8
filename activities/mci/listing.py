"""The VMs that live in the clouds, in every place that this worker reaches or that an MCI uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from activities.fence import OrderFence
from activities.mci.vms import order_token
from activities.orphans import OrphanRemovingListing
from activities.permits import PermitPool
from activities.retry import ProviderRetry
from domain.errors import ProviderError, Rejected, UnknownOutcome, format_one_line
from domain.mci.tables import STATUS_OF_CLOUD_STATE, VmStatus
from domain.model import Grant, ObjectView
from domain.orphans import NO_RECORD, ProviderObject, ProviderObjectKey
from domain.paths import name_of, parent_of
from domain.ports import Cloud, VmFacts, VmOrder, VmState
from domain.wire import split_placement

GONE_STATUSES = (
    VmStatus.TERMINATED,
    VmStatus.FAILED,
    VmStatus.UNDEFINED,
)  # of these there need be nothing in the cloud
POWERED_STATUSES = (VmStatus.RUNNING, VmStatus.SUSPENDED)  # of these the cloud must say the same

ListPlaces = Callable[[], Awaitable[list[str]]]


@dataclass(eq=False)
class VmListing(OrphanRemovingListing):
    """`places`: where VMs may be, whether or not we have a record of any there."""

    family = "mci"
    kinds = ("vm",)
    removes = ("orphan",)
    absence = "its cloud knows no such VM"

    clouds: Mapping[str, Cloud]
    permits: PermitPool
    patience: ProviderRetry
    places: ListPlaces

    async def list_providers(self, prefix: str) -> AsyncIterator[str]:
        for place in sorted(set(await self.places())):
            yield place

    async def read_provider_page(
        self, provider: str, prefix: str, after: ProviderObjectKey
    ) -> Sequence[ProviderObject]:
        """Reads a page of a place's VMs in one call."""
        csp, region = split_placement(provider)
        async with (
            self.permits.take_region_permit(csp, region),
            self.permits.take_vm_slots(csp, region),
            asyncio.timeout(self.patience.call_seconds),
        ):
            page = await self.clouds[csp].list_tagged_vms(region, prefix, after[1:])
        return [
            ProviderObject(facts.path, provider, facts.cloud_id, facts.state, facts.token, facts.created)
            for facts in page
        ]

    def why_orphaned(self, thing: ProviderObject, record: ObjectView | None) -> str:
        """Compares the cloud's id with the record's; the token, as long as the VM's creation was not answered."""
        if record is None:
            return NO_RECORD
        known = record.info.get("cloud_id")
        made = record.info.get("generation")
        by_token = known is None and made is not None and thing.token == order_token(record.path, made, "create", 0)
        if known == thing.id or by_token:
            return "" if record.status != VmStatus.TERMINATED else str(record.status)
        return f"{record.status} as {known}" if known else str(record.status)

    def describe_difference(self, thing: ProviderObject, record: ObjectView) -> str:
        seen = STATUS_OF_CLOUD_STATE.get(VmState(thing.state))
        if seen is None or record.status not in POWERED_STATUSES or seen == record.status:
            return ""
        return f"is {record.status}, but {thing.state} in its cloud"

    def must_have_thing(self, record: ObjectView) -> bool:
        return record.status not in GONE_STATUSES

    def removal_target(self, thing: ProviderObject) -> str:
        """Returns a path below the VM's own, as that one may have a record of another VM."""
        return f"{thing.path}:orphan:{thing.id}"

    async def remove_orphan(self, grant: Grant, right: OrderFence) -> str:
        """Terminates the VM in whatever place it is. The action's locks keep the actions of its path away."""
        place = str(grant.details.get("place", ""))
        problems: list[str] = []
        ended: list[str] = []
        for each in [place] if place else sorted(set(await self.places())):
            try:
                ended += [each] if await self._terminate_in_place(grant, each, right) else []
            except ProviderError as error:
                problems.append(f"{each}: {format_one_line(error)}")
        if problems:
            raise Rejected("; ".join(problems))
        return f"terminated in {', '.join(ended)}" if ended else "there is no such VM any more"

    async def _terminate_in_place(self, grant: Grant, place: str, right: OrderFence) -> bool:
        """Terminates the orphan if this place has it. Returns False if there is no such VM here."""
        csp, region = split_placement(place)
        vm, cloud_id, cloud = parent_of(grant.path) or "", name_of(grant.path), self.clouds[csp]
        order = VmOrder(vm, f"{grant.path}#{grant.epoch}", cloud_id, epoch=grant.epoch)
        async with self.permits.take_region_permit(csp, region):
            (facts,) = await self.patience.call_with_retry(
                partial(cloud.describe_vms, region, [order]), room=lambda: self.permits.take_vm_slots(csp, region)
            )
            if facts is None or facts.state is VmState.TERMINATED:
                return False
            if facts.path != vm:
                raise Rejected(f"{cloud_id} carries the path {facts.path}, not {vm}: left alone")
            await self.patience.call_with_retry(
                partial(_terminate_vm, cloud, region, order),
                room=lambda: self.permits.take_vm_slots(csp, region, 1, right),
            )
        return True


async def _terminate_vm(cloud: Cloud, region: str, order: VmOrder) -> None:
    (answer,) = await cloud.perform_orders("terminate", region, [order])
    if not isinstance(answer, VmFacts):
        raise answer
    if answer.state is not VmState.TERMINATED:
        raise UnknownOutcome(f"the cloud says that it is {answer.state}")
