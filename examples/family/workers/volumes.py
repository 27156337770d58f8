"""Volumes in a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.volumes import KINDS, QUEUE
from domain.volumes.rules import RULES
from providers.volumes import MOVES, NAME, simulated_storage
from store.volumes.hooks import HOOKS
from workflows.volumes import OperateVolume

from activities.healing import InspectObject
from activities.orphans import ProviderListing
from activities.retry import ProviderRetry
from activities.singleorder import SingleOrderActivities, SingleOrderListing
from store.hooks import HooksByKind
from workers.context import WorkerContext
from workers.family import ActivitiesByQueue, Family


class VolumeFamily(Family):
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
        self.storage = simulated_storage(context.cloud_database, settings.simulated_latency, settings.simulated_jitter)
        patience = ProviderRetry(call_seconds=settings.call_timeout, total_seconds=settings.patience)
        self._work = SingleOrderActivities(context.inventory, self.storage, RULES, context.fence, patience)

    def activities(self) -> ActivitiesByQueue:
        return {QUEUE: [self._work.order_object, self._work.settle_ordered]}

    def inspectors(self) -> Mapping[str, InspectObject]:
        return {"volume": self._work.inspect_object}

    def listings(self) -> Sequence[ProviderListing]:
        return [SingleOrderListing(self.name, self.storage, RULES, KINDS)]

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        return {NAME: (*MOVES, "describe")}
