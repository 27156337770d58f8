"""The MCI family's tables: what places offer, connections, the MCIs that use them, and unanswered orders for VMs."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from store.schema import Path, define_index, define_table


class OfferRow(NamedTuple):
    """What a place was seen to offer, to every tenant."""

    place: str
    checked: dict[str, str]  # verified specs and images, with the time


offers = define_table("place_offers", OfferRow, ("place",))


class ConnectionRow(NamedTuple):
    """A region that a tenant ever used."""

    tenant: str
    place: str
    generation: int
    resources: dict[str, str]  # that its VMs share; an empty id was ordered and perhaps created
    holder: str  # prepares or releases them now; its hold expires by itself
    held_until: datetime | None  # by the database's clock
    epoch: int  # of the last hold; raised by every new one


connections = define_table("connections", ConnectionRow, ("tenant", "place"))


class PlaceUseRow(NamedTuple):
    """An MCI that uses a connection of its tenant."""

    tenant: str
    place: str
    path: Path


connection_uses = define_table(
    "connection_uses", PlaceUseRow, ("tenant", "place", "path"), define_index("connection_uses_of_path", "path")
)


class UnansweredOrderRow(NamedTuple):
    """A VM whose record was deleted before a cloud answered: the order may still be carried out. Its token follows from
    path and generation."""

    place: str
    path: Path
    generation: int
    since: datetime  # when the record was deleted


unanswered_orders = define_table("unanswered", UnansweredOrderRow, ("place", "path", "generation"))
