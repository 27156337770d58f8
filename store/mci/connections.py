"""Connections: what the VMs of a cloud's region share. Made once, used by many MCIs, removed with the last of them.

Whoever prepares or releases a connection holds it meanwhile: one at a time, over all MCIs and processes. Every function
here that decides something locks the connection's line first, and several lines in the order of their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from domain.mci.messages import ConnectionHold, HeldConnection, LeaveResult, PlaceNeeds
from domain.ports import SHARED
from store import clock
from store.mci.tables import connections, uses
from store.schema import objects

CHECKED_FOR = timedelta(hours=24)  # so long a cloud is believed to offer what it was seen to offer

_NAMED = sa.select(connections).where(connections.c.place.in_(sa.bindparam("places", expanding=True)))
_ONE = sa.select(connections).where(connections.c.place == sa.bindparam("at_place")).with_for_update()
_CHANGE = sa.update(connections).where(connections.c.place == sa.bindparam("at_place"))
_ADD_USE = sa.text("INSERT INTO connection_uses (place, path) VALUES (:place, :path) ON CONFLICT DO NOTHING")
_ADD_CONNECTION = sa.text(
    "INSERT INTO connections (place, generation, resources, checked, holder, epoch) "
    "VALUES (:place, 0, '{}', '{}', '', 0) ON CONFLICT DO NOTHING"
)
_OTHERS = sa.select(uses.c.path).where(uses.c.place == sa.bindparam("at_place"), uses.c.path != sa.bindparam("mine"))
_PLACES = sa.select(uses.c.place).where(uses.c.path == sa.bindparam("mine")).order_by(uses.c.place)
_IS_HELD = connections.c.holder != ""
_LEFT = sa.delete(uses).where(uses.c.place == sa.bindparam("at_place"), uses.c.path == sa.bindparam("mine"))
_FORGET = sa.delete(uses).where(uses.c.path == sa.bindparam("mine"))
_VMS = sa.select(objects.c.path).where(objects.c.parent == sa.bindparam("mine")).limit(1)


def unverified(connection: sa.Connection, wanted: Sequence[PlaceNeeds], at: datetime) -> list[PlaceNeeds]:
    """Of what is wanted, what no cloud was lately seen to offer."""
    known = {row["place"]: row["checked"] for row in _rows(connection, [each.place for each in wanted])}
    return [each for each in wanted if not _offered(known.get(each.place, {}), each, at)]


def mark_verified(connection: sa.Connection, wanted: PlaceNeeds, at: datetime) -> None:
    """The cloud offers all of this."""
    row = _lock(connection, wanted.place)
    seen = {word: at.isoformat() for word in _words(wanted)}
    connection.execute(_CHANGE, {"at_place": wanted.place, "checked": {**row["checked"], **seen}})


def record_use(connection: sa.Connection, path: str, places: Sequence[str]) -> list[str]:
    """The MCI uses these places from now on. Returns those that are not prepared.

    Locked before they are looked at: else the last one could leave in between, and take the network along.
    """
    rows = [_lock(connection, place) for place in sorted(places)]
    connection.execute(_ADD_USE, [{"place": place, "path": path} for place in places])
    ready = {row["place"] for row in rows if not row["holder"] and _complete(row["resources"])}
    return [place for place in places if place not in ready]


def places_of(connection: sa.Connection, path: str) -> list[str]:
    """Where the MCI uses something."""
    return list(connection.execute(_PLACES, {"mine": path}).scalars())


def used_alone(connection: sa.Connection, path: str) -> list[str]:
    """Where the MCI uses something that nobody else does."""
    others = {"mine": path}
    return [
        place
        for place in places_of(connection, path)
        if connection.execute(_OTHERS, {**others, "at_place": place}).first() is None
    ]


def forget(connection: sa.Connection, path: str) -> None:
    """The MCI is gone, and uses nothing any more. Whoever leaves at the same time sees all of its uses, or none."""
    for place in places_of(connection, path):
        _lock(connection, place)
    connection.execute(_FORGET, {"mine": path})


def resources(connection: sa.Connection, place: str) -> dict[str, str]:
    """What the VMs of a place share."""
    return {what: known for row in _rows(connection, [place]) for what, known in row["resources"].items()}


def acquire_hold(connection: sa.Connection, wish: ConnectionHold) -> HeldConnection | None:
    """Hold a connection. None if another one holds it.

    The same holder gets it at once, under a new number: another worker goes on with its work, and the first is late.
    """
    row = _lock(connection, wish.place)
    at = clock.now(connection)
    if row["holder"] not in ("", wish.holder) and row["held_until"] is not None and at < row["held_until"]:
        return None
    generation = row["generation"] if row["resources"] else wish.generation  # made anew: other tokens than before
    epoch = max(row["epoch"] + 1, clock.micros(connection))  # also above those that a restored store has forgotten
    held = {"holder": wish.holder, "held_until": at + wish.lasts, "generation": generation, "epoch": epoch}
    connection.execute(_CHANGE, {"at_place": wish.place, **held})
    return HeldConnection(wish.place, generation, epoch, dict(row["resources"]))


def renew_hold(connection: sa.Connection, held: HeldConnection, lasts: timedelta) -> bool:
    """Go on holding. False: the hold was lost."""
    until = {"at_place": held.place, "held_until": clock.now(connection) + lasts}
    return connection.execute(_CHANGE.where(connections.c.epoch == held.epoch, _IS_HELD), until).rowcount == 1


def record_resource(
    connection: sa.Connection, held: HeldConnection, lasts: timedelta, what: str, cloud_id: str | None
) -> bool:
    """Ordered or perhaps going (no id), made, or removed (None). False if the connection is no longer ours."""
    row = _lock(connection, held.place)
    if not _is_held_by(row, held):
        return False
    known = {name: kept for name, kept in row["resources"].items() if name != what}
    if cloud_id is not None:
        known[what] = cloud_id
    until = clock.now(connection) + lasts
    connection.execute(_CHANGE, {"at_place": held.place, "resources": known, "held_until": until})
    return True


def release_hold(connection: sa.Connection, held: HeldConnection) -> None:
    """Nobody holds the connection any more, if it was us who did."""
    mine = connections.c.epoch == held.epoch
    connection.execute(_CHANGE.where(mine), {"at_place": held.place, "holder": "", "held_until": None})


def _is_held_by(row: sa.RowMapping, held: HeldConnection) -> bool:
    return bool(row["holder"]) and row["epoch"] == held.epoch


def leave_place(connection: sa.Connection, wish: ConnectionHold, path: str) -> LeaveResult:
    """The MCI uses the place no more, unless it still has VMs. The last one to leave removes what is shared."""
    _lock(connection, wish.place)
    if connection.execute(_VMS, {"mine": path}).first():
        return LeaveResult.OCCUPIED
    if connection.execute(_OTHERS, {"at_place": wish.place, "mine": path}).first() is None:
        return LeaveResult.BUSY if acquire_hold(connection, wish) is None else LeaveResult.LAST
    connection.execute(_LEFT, {"at_place": wish.place, "mine": path})
    return LeaveResult.SHARED


def finish_leaving(connection: sa.Connection, held: HeldConnection, path: str) -> bool:
    """Everything shared there is removed, and the MCI has left. False if the connection is not ours any more."""
    if not _is_held_by(_lock(connection, held.place), held):
        return False
    connection.execute(_LEFT, {"at_place": held.place, "mine": path})
    release_hold(connection, held)
    return True


def _rows(connection: sa.Connection, places: Iterable[str]) -> Sequence[sa.RowMapping]:
    return connection.execute(_NAMED, {"places": list(places)}).mappings().all()


def _lock(connection: sa.Connection, place: str) -> sa.RowMapping:
    """The line of a place, made if it is not there, locked until the transaction ends."""
    found = connection.execute(_ONE, {"at_place": place}).mappings().one_or_none()
    if found is None:
        connection.execute(_ADD_CONNECTION, {"place": place})
        found = connection.execute(_ONE, {"at_place": place}).mappings().one()
    return found


def _complete(resources: Mapping[str, str]) -> bool:
    return all(resources.get(what) for what in SHARED)


def _words(wanted: PlaceNeeds) -> list[str]:
    return [*(f"spec:{name}" for name in wanted.specs), *(f"image:{name}" for name in wanted.images)]


def _offered(checked: Mapping[str, str], wanted: PlaceNeeds, at: datetime) -> bool:
    oldest = (at - CHECKED_FOR).isoformat()
    return all(checked.get(word, "") > oldest for word in _words(wanted))
