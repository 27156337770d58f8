"""What CRMs have: a CRM lists its instances when it connects, and the cloudlet's record keeps what nobody knows."""

from __future__ import annotations

from collections.abc import AsyncIterator

from activities.orphans import LivingPage, ProviderListing
from activities.pages import list_all_objects
from domain.edge.tables import S
from domain.model import ObjectView
from domain.orphans import LivingThing, ThingKey
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

    async def list_living(self, prefix: str, after: ThingKey) -> AsyncIterator[LivingPage]:
        home = ":".join(prefix.split(":")[:CLOUDLET_WORDS])
        async for cloudlet in list_all_objects(self._inventory, "cloudlet", home):
            if cloudlet.path >= after[0]:
                yield LivingPage(cloudlet.path, _unknown_instances(cloudlet, prefix))

    def must_exist(self, record: ObjectView) -> bool:
        return bool(record.info.get("missing"))


def _unknown_instances(cloudlet: ObjectView, prefix: str) -> list[LivingThing]:
    paths = sorted(cloudlet.info.get("orphans", ()))
    return [
        LivingThing(path, cloudlet.path, path, S.READY)
        for path in paths
        if not prefix or path == prefix or path.startswith(f"{prefix}:")
    ]
