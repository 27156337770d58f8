"""Looks an orphan up in its cloud and checks its identity, before the record whose path it carries adopts it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from temporalio import activity

from activities.heartbeat import send_heartbeats
from activities.permits import PermitPool
from activities.retry import ProviderRetry
from domain.errors import ProviderError, format_one_line
from domain.mci.orphans import IdentifiedOrphan, OrphanOrder
from domain.mci.tables import STATUS_OF_CLOUD_STATE
from domain.paths import name_of, parent_of
from domain.ports import Cloud, VmOrder, VmState
from domain.wire import split_placement


class IdentifyOrphanActivities:
    """One instance per worker process, so that all share its permits."""

    def __init__(self, clouds: Mapping[str, Cloud], permits: PermitPool, patience: ProviderRetry) -> None:
        self._clouds = clouds
        self._permits = permits
        self._patience = patience

    @activity.defn
    async def identify_orphan(self, order: OrphanOrder) -> IdentifiedOrphan:
        """Checks that the record may adopt the VM: it carries the path, rests, and the record has no other VM."""
        csp, region = split_placement(order.place)
        vm, cloud_id = parent_of(order.path) or "", name_of(order.path)
        asked = [VmOrder(vm, f"{order.path}#{order.epoch}", one) for one in (cloud_id, order.own) if one]
        try:
            async with send_heartbeats(), self._permits.take_region_permit(csp, region):
                facts, *own = await self._patience.call_with_retry(
                    partial(self._clouds[csp].describe_vms, region, asked),
                    room=lambda: self._permits.take_vm_slots(csp, region),
                )
        except ProviderError as error:
            return IdentifiedOrphan(problem=f"{order.place}: {format_one_line(error)}")
        if facts is None or facts.state is VmState.TERMINATED:
            return IdentifiedOrphan(problem=f"{cloud_id} is not in {order.place} any more")
        if facts.path != vm:
            return IdentifiedOrphan(problem=f"{cloud_id} carries the path {facts.path}, not {vm}: left alone")
        if facts.state not in STATUS_OF_CLOUD_STATE:
            return IdentifiedOrphan(problem=f"{cloud_id} is {facts.state}: ask again when it rests")
        if alive := [facts for facts in own if facts and facts.state is not VmState.TERMINATED]:
            return IdentifiedOrphan(problem=f"{vm} has a VM, {order.own}, which is {alive[0].state}: it must go first")
        return IdentifiedOrphan(state=facts.state, address=facts.address)
