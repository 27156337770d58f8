"""Identifies an orphan, before the record of the path that it carries adopts it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from temporalio import activity

from activities.heartbeat import heartbeat
from activities.permits import Permits
from activities.retry import ProviderRetry
from domain.errors import ProviderError, one_line
from domain.mci import OBSERVED
from domain.mci.strays import Identified, StrayOrder
from domain.paths import name_of, parent_of
from domain.ports import Cloud, VmOrder, VmState
from domain.wire import split_placement


class IdentifyActivities:
    """One instance per worker process, so that all share its permits."""

    def __init__(self, clouds: Mapping[str, Cloud], permits: Permits, patience: ProviderRetry) -> None:
        self._clouds = clouds
        self._permits = permits
        self._patience = patience

    @activity.defn
    async def identify_orphan(self, order: StrayOrder) -> Identified:
        """Checks that the record may adopt the VM: it carries the path, rests, and the record has no other VM."""
        csp, region = split_placement(order.place)
        vm, cloud_id = parent_of(order.path) or "", name_of(order.path)
        asked = [VmOrder(vm, f"{order.path}#{order.epoch}", one) for one in (cloud_id, order.own) if one]
        try:
            async with heartbeat(), self._permits.region(csp, region):
                found, *own = await self._patience.call_with_retry(
                    partial(self._clouds[csp].describe, region, asked), room=lambda: self._permits.vms(csp, region)
                )
        except ProviderError as error:
            return Identified(problem=f"{order.place}: {one_line(error)}")
        if found is None or found.state is VmState.TERMINATED:
            return Identified(problem=f"{cloud_id} is not in {order.place} any more")
        if found.path != vm:
            return Identified(problem=f"{cloud_id} carries the path {found.path}, not {vm}: left alone")
        if found.state not in OBSERVED:
            return Identified(problem=f"{cloud_id} is {found.state}: ask again when it rests")
        if alive := [each for each in own if each and each.state is not VmState.TERMINATED]:
            return Identified(problem=f"{vm} has a VM, {order.own}, which is {alive[0].state}: it must go first")
        return Identified(state=found.state, address=found.address)
