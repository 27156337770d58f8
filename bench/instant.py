"""A cloud that answers at once and stores nothing, so that only our own time is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.ports import FIRST_VM, SharedResource, VmAnswer, VmFacts, VmKey, VmOrder, VmState

_STATE = {"suspend": VmState.STOPPED, "terminate": VmState.TERMINATED}


class InstantCloud:
    """`domain.ports.Cloud` without latency, memory or faults; a call carries a few VMs, as real clouds' calls do."""

    orders_per_call = 5

    async def perform_orders(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        state = _STATE.get(verb, VmState.RUNNING)
        return [VmFacts(order.path, order.cloud_id or order.token, state) for order in orders]

    async def describe_vms(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        return [None for _ in orders]

    async def list_tagged_vms(self, region: str, prefix: str, after: VmKey = FIRST_VM) -> list[VmFacts]:
        return []

    async def list_missing_offers(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        return []

    async def prepare_resource(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        return resource.token

    async def release_resource(self, region: str, resource: SharedResource) -> None:
        return None
