"""Volumes in a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from activities.healing import InspectObject
from activities.orphans import ProviderListing
from activities.singleorder import SingleOrderActivities, SingleOrderListing
from domain.volumes import KINDS, QUEUE
from domain.volumes.rules import RULES
from providers.volumes import MOVES, NAME, simulated_volumes
from store.hooks import HooksByKind
from store.volumes.hooks import HOOKS
from workers.context import WorkerContext
from workers.family import ActivitiesByQueue, Family
from workflows.volumes import OperateVolume


class VolumeFamily(Family):
    """The volumes family for a worker."""

    name = "volumes"
    kinds = KINDS
    workflows = (OperateVolume,)
    queues = (QUEUE,)

    @classmethod
    def hooks(cls) -> HooksByKind:
        return HOOKS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        settings = context.settings
        self.provider = simulated_volumes(context.cloud_database, settings.simulated_latency, settings.simulated_jitter)
        self._work = SingleOrderActivities(context.inventory, self.provider, RULES, context.fence, self.retry)

    def activities(self) -> ActivitiesByQueue:
        return {QUEUE: [self._work.order_object, self._work.settle_ordered]}

    def inspectors(self) -> Mapping[str, InspectObject]:
        return {"volume": self._work.inspect_object}

    def listings(self) -> Sequence[ProviderListing]:
        return [SingleOrderListing(self.name, self.provider, RULES, KINDS, self.retry)]

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        return {NAME: (*MOVES, "describe")}
