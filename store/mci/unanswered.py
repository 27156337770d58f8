"""Unanswered orders: VMs that a cloud may still create after their records were deleted. Sweeps look for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain.mci.messages import UnansweredOrder
from store.land import IS_ALIKE
from store.mci.tables import unanswered_orders
from store.schema import Number, json_key_as_text, objects

_INSERT_UNANSWERED = sa.insert(unanswered_orders).from_select(
    ["place", "path", "generation", "since"],
    sa.select(
        objects.c.placement,
        objects.c.path,
        sa.cast(json_key_as_text(objects.c.info, "generation"), Number),
        sa.bindparam("gone_at", type_=unanswered_orders.c.since.type),
    ).where(
        *IS_ALIKE,
        json_key_as_text(objects.c.info, "cloud_id").is_(None),
        json_key_as_text(objects.c.info, "generation").is_not(None),
    ),
)
# Skips from place to place; DISTINCT would read every order.
_SELECT_NEXT_PLACE = (
    sa.select(unanswered_orders.c.place)
    .where(unanswered_orders.c.place > sa.bindparam("after"))
    .order_by(unanswered_orders.c.place)
    .limit(1)
)
_SELECT_PAGE = (
    sa.select(unanswered_orders)
    .where(
        unanswered_orders.c.place == sa.bindparam("at_place"),
        sa.tuple_(unanswered_orders.c.path, unanswered_orders.c.generation)
        > sa.tuple_(sa.bindparam("path", type_=sa.String), sa.bindparam("generation", type_=Number)),
    )
    .order_by(unanswered_orders.c.path, unanswered_orders.c.generation)
    .limit(sa.bindparam("most"))
)
_DELETE_UNANSWERED = sa.delete(unanswered_orders).where(
    unanswered_orders.c.place == sa.bindparam("at_place"),
    unanswered_orders.c.path == sa.bindparam("at_path"),
    unanswered_orders.c.generation == sa.bindparam("born_in"),
)


def keep_unanswered_orders(connection: sa.Connection, going: Mapping[str, Any], at: datetime) -> None:
    """Stores an unanswered order for each record without a cloud ID, before it is deleted: its VM may still appear."""
    connection.execute(_INSERT_UNANSWERED, {**going, "gone_at": at})


def list_unanswered_places(connection: sa.Connection) -> list[str]:
    """Returns the places that have unanswered orders."""
    found: list[str] = []
    while place := connection.execute(_SELECT_NEXT_PLACE, {"after": found[-1] if found else ""}).scalar_one_or_none():
        found.append(place)
    return found


def list_unanswered_orders(
    connection: sa.Connection, place: str, after: UnansweredOrder | None, limit: int
) -> list[UnansweredOrder]:
    """Returns a page of the unanswered orders of a place, ordered by path."""
    last = {"path": after.path, "generation": after.generation} if after else {"path": "", "generation": 0}
    rows = connection.execute(_SELECT_PAGE, {"at_place": place, "most": limit, **last})
    return [UnansweredOrder.model_validate(row._asdict()) for row in rows]


def forget_unanswered_orders(connection: sa.Connection, some: Sequence[UnansweredOrder]) -> None:
    """Deletes unanswered orders that can have no effect any more."""
    named = [{"at_place": order.place, "at_path": order.path, "born_in": order.generation} for order in some]
    if named:
        connection.execute(_DELETE_UNANSWERED, named)
