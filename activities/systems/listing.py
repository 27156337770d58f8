"""The services that the backends run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from activities.fence import OrderFence
from activities.orphans import OrphanRemovingListing
from activities.systems.backend import remove_services
from domain.errors import Rejected
from domain.model import Grant, ObjectView
from domain.orphans import ProviderObject, ProviderObjectKey, begin_time_of_epoch
from domain.services.ports import Backend
from domain.systems.ports import SystemStore, SystemWork
from domain.systems.rules import LEAVING_KEY
from domain.systems.specs import is_service
from domain.systems.tables import PartState


class ServiceListing(OrphanRemovingListing):
    """Lists the services that live at the backends, to find those without a record, and removes them."""

    family = "systems"
    kinds = removes = ("part",)
    absence = "its backend runs no such service"
    instead = "its definition is the deploy's to say: deploy it anew at its path, which takes over what runs there"

    def __init__(self, backends: Mapping[str, Backend], store: SystemStore) -> None:
        self._backends = backends
        self._store = store

    async def list_providers(self, prefix: str) -> AsyncIterator[str]:
        for name in sorted(self._backends):
            yield name

    async def read_provider_page(
        self, provider: str, prefix: str, after: ProviderObjectKey
    ) -> Sequence[ProviderObject]:
        return [
            ProviderObject(
                path=facts.path,
                provider=provider,
                id=facts.path,
                state=f"{facts.alive} of {facts.wanted} up",
                token=str(facts.generation) if facts.generation > 0 else "",
                since=begin_time_of_epoch(facts.generation // 2),
            )
            for facts in await self._backends[provider].list_existing_objects(prefix, after[1])
        ]

    def must_have_thing(self, record: ObjectView) -> bool:
        """Tells whether a service must run: not one that never started, nor one whose removal has begun."""
        return is_service(record.spec) and record.phase != PartState.FAILED and LEAVING_KEY not in record.info

    async def remove_orphan(self, grant: Grant, right: OrderFence) -> str:
        """Ends the services at and below the path, except those that have a record."""
        place = str(grant.details.get("place", ""))
        if place and place not in self._backends:
            raise Rejected(f"there is no backend {place}")
        keep = [part.path for part in await self._store.list_services(grant.path)]
        ended = []
        for name, backend in sorted(self._backends.items()):
            work = SystemWork(path=grant.path, epoch=grant.epoch, backend=name)
            if place in ("", name) and await remove_services(backend, work, keep, right):
                ended.append(name)
        return f"removed at {', '.join(ended)}" if ended else "no backend runs such a service any more"
