"""What CRMs have: a CRM lists its instances when it connects, and the cloudlet's record keeps what nobody knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from activities.objectpages import list_all_objects
from activities.orphans import ProviderListing
from domain.edge.tables import S
from domain.model import ObjectView
from domain.orphans import ProviderObject, ProviderObjectKey
from domain.paths import is_at_or_below
from domain.ports import Inventory

CLOUDLET_WORDS = 4  # org:NAME:cloudlet:NAME


class CrmListing(ProviderListing):
    """Lists the instances that CRMs report, to find those without a record. A CRM tells a path and a state, and neither
    a spec nor an age.

    It lists the instances that a cloudlet has and no record knew; those that a record knows are marked when they are
    missing. So what is not marked is there.
    """

    family = "edge"
    kinds = ("cluster", "app")
    absence = "its CRM does not have it"
    instead = "a CRM tells no spec that could be recorded: create it anew under its path, or remove it"

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    async def list_providers(self, prefix: str) -> AsyncIterator[str]:
        async for cloudlet in list_all_objects(self._inventory, "cloudlet", _cloudlet_path(prefix)):
            yield cloudlet.path

    async def read_provider_page(
        self, provider: str, prefix: str, after: ProviderObjectKey
    ) -> Sequence[ProviderObject]:
        found = await self._inventory.read_objects([provider])
        paths = sorted(path for cloudlet in found.values() for path in cloudlet.info.get("orphans", ()))
        things = [
            ProviderObject(path, provider, path, S.READY)
            for path in paths
            if not prefix or is_at_or_below(path, prefix)
        ]
        return [thing for thing in things if thing.sort_key > after]

    def provider_of_record(self, record: ObjectView) -> str:
        return _cloudlet_path(record.path)

    def must_have_thing(self, record: ObjectView) -> bool:
        return bool(record.info.get("missing"))


def _cloudlet_path(path: str) -> str:
    """Returns the cloudlet at or above a path; the path itself if it is above all cloudlets."""
    return ":".join(path.split(":")[:CLOUDLET_WORDS])
