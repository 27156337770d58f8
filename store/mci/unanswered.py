"""Unanswered orders: VMs that a cloud may still create after their records were deleted. Sweeps look for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain.mci.messages import UnansweredOrder
from store.land import ALIKE
from store.mci.tables import unanswered
from store.schema import Number, json_text, objects

_KEEP = sa.insert(unanswered).from_select(
    ["place", "path", "generation", "since"],
    sa.select(
        objects.c.placement,
        objects.c.path,
        sa.cast(json_text(objects.c.info, "generation"), Number),
        sa.bindparam("gone_at", type_=unanswered.c.since.type),
    ).where(
        *ALIKE, json_text(objects.c.info, "cloud_id").is_(None), json_text(objects.c.info, "generation").is_not(None)
    ),
)
# Skips from place to place; DISTINCT would read every order.
_NEXT_PLACE = (
    sa.select(unanswered.c.place)
    .where(unanswered.c.place > sa.bindparam("after"))
    .order_by(unanswered.c.place)
    .limit(1)
)
_PAGE = (
    sa.select(unanswered)
    .where(
        unanswered.c.place == sa.bindparam("at_place"),
        sa.tuple_(unanswered.c.path, unanswered.c.generation)
        > sa.tuple_(sa.bindparam("path", type_=sa.String), sa.bindparam("generation", type_=Number)),
    )
    .order_by(unanswered.c.path, unanswered.c.generation)
    .limit(sa.bindparam("most"))
)
_FORGET = sa.delete(unanswered).where(
    unanswered.c.place == sa.bindparam("at_place"),
    unanswered.c.path == sa.bindparam("at_path"),
    unanswered.c.generation == sa.bindparam("born_in"),
)


def keep(connection: sa.Connection, going: Mapping[str, Any], at: datetime) -> None:
    """Stores an unanswered order for each of the records to be deleted that has no cloud id."""
    connection.execute(_KEEP, {**going, "gone_at": at})


def places(connection: sa.Connection) -> list[str]:
    """Returns the places that have unanswered orders."""
    found: list[str] = []
    while place := connection.execute(_NEXT_PLACE, {"after": found[-1] if found else ""}).scalar_one_or_none():
        found.append(place)
    return found


def page(connection: sa.Connection, place: str, after: UnansweredOrder | None, limit: int) -> list[UnansweredOrder]:
    """Returns a page of the unanswered orders of a place, ordered by path."""
    last = {"path": after.path, "generation": after.generation} if after else {"path": "", "generation": 0}
    rows = connection.execute(_PAGE, {"at_place": place, "most": limit, **last})
    return [UnansweredOrder.model_validate(row._asdict()) for row in rows]


def forget(connection: sa.Connection, some: Sequence[UnansweredOrder]) -> None:
    """Deletes unanswered orders that can have no effect any more."""
    named = [{"at_place": each.place, "at_path": each.path, "born_in": each.generation} for each in some]
    if named:
        connection.execute(_FORGET, named)
