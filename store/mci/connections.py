"""Connections: what a tenant's VMs share in a region. Created by its first MCI there, removed with its last.

A worker that prepares or releases a connection holds it exclusively, over all its MCIs and processes. Every function
that decides locks the connection's row first, and several rows in the order of their places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import starmap
from typing import Any

import sqlalchemy as sa

from domain.mci.messages import ConnectionLock, ConnectionLockRequest, LeavePlaceResult, PlaceRequirements
from domain.ports import SHARED_RESOURCE_TYPES
from domain.registry import tenant_of
from store import dbtime
from store.dbtime import resolve_write_time
from store.mci.tables import ConnectionRow, OfferRow, connection_uses, connections, offers
from store.openaction import lock_open_action
from store.schema import objects

VERIFIED_FOR = timedelta(hours=24)  # how long a verified offer counts

_IS_AT_PLACE = (connections.c.tenant == sa.bindparam("of_tenant"), connections.c.place == sa.bindparam("at_place"))
_IS_USE_OF_PLACE = (
    connection_uses.c.tenant == sa.bindparam("of_tenant"),
    connection_uses.c.place == sa.bindparam("at_place"),
)
_SELECT_OFFERS = sa.select(offers).where(offers.c.place.in_(sa.bindparam("places", expanding=True)))
_LOCK_OFFER = sa.select(offers).where(offers.c.place == sa.bindparam("at_place")).with_for_update()
_INSERT_OFFER = sa.text("INSERT INTO place_offers (place, checked) VALUES (:place, '{}') ON CONFLICT DO NOTHING")
_UPDATE_OFFER = sa.update(offers).where(offers.c.place == sa.bindparam("at_place"))
_SELECT_RESOURCES = sa.select(connections.c.resources).where(*_IS_AT_PLACE)
_LOCK_CONNECTION = sa.select(connections).where(*_IS_AT_PLACE).with_for_update()
_UPDATE_CONNECTION = sa.update(connections).where(*_IS_AT_PLACE)
_INSERT_USE = sa.text(
    "INSERT INTO connection_uses (tenant, place, path) VALUES (:tenant, :place, :path) ON CONFLICT DO NOTHING"
)
_INSERT_CONNECTION = sa.text(
    "INSERT INTO connections (tenant, place, generation, resources, holder, epoch) "
    "VALUES (:of_tenant, :at_place, 0, '{}', '', 0) ON CONFLICT DO NOTHING"
)
_SELECT_OTHER_USERS = (
    sa.select(connection_uses.c.path).where(*_IS_USE_OF_PLACE, connection_uses.c.path != sa.bindparam("mine")).limit(1)
)
_ANY_USER = (  # of each connection: looked up, not joined, as a connection may have a hundred thousand users
    sa.select(connection_uses.c.path)
    .where(connection_uses.c.tenant == connections.c.tenant, connection_uses.c.place == connections.c.place)
    .limit(1)
    .scalar_subquery()
)
_SELECT_USED_PLACES = sa.select(connections.c.place).where(_ANY_USER.is_not(None)).distinct()
_SELECT_PLACES = (
    sa.select(connection_uses.c.place)
    .where(connection_uses.c.path == sa.bindparam("mine"))
    .order_by(connection_uses.c.place)
)
_IS_HELD = connections.c.holder != ""
_DELETE_USE = sa.delete(connection_uses).where(*_IS_USE_OF_PLACE, connection_uses.c.path == sa.bindparam("mine"))
_DELETE_USES = sa.delete(connection_uses).where(connection_uses.c.path == sa.bindparam("mine"))
_SELECT_ONE_VM = sa.select(objects.c.path).where(objects.c.parent == sa.bindparam("mine")).limit(1)


def list_unverified_requirements(
    connection: sa.Connection, wanted: Sequence[PlaceRequirements], at: datetime
) -> list[PlaceRequirements]:
    """Returns the specs and images that were not verified with their cloud in the last 24 hours."""
    rows = connection.execute(_SELECT_OFFERS, {"places": [needs.place for needs in wanted]})
    known = {row.place: row.checked for row in starmap(OfferRow, rows)}
    at = resolve_write_time(connection, at)
    return [needs for needs in wanted if not _was_verified(known.get(needs.place, {}), needs, at)]


def record_verified_requirements(connection: sa.Connection, wanted: PlaceRequirements, at: datetime) -> None:
    """Records that the cloud offers these specs and images."""
    at_place = {"at_place": wanted.place}
    row = connection.execute(_LOCK_OFFER, at_place).one_or_none()
    if row is None:
        connection.execute(_INSERT_OFFER, {"place": wanted.place})
        row = connection.execute(_LOCK_OFFER, at_place).one()
    seen = {word: resolve_write_time(connection, at).isoformat() for word in _names_of_requirements(wanted)}
    connection.execute(_UPDATE_OFFER, at_place | {"checked": {**OfferRow(*row).checked, **seen}})


def record_place_uses(connection: sa.Connection, path: str, places: Sequence[str]) -> list[str]:
    """Records that the MCI uses these places. Returns the places that are not prepared for its tenant.

    Locks the rows before it reads them; else the last user could leave meanwhile and remove the network.
    """
    tenant = tenant_of(path)
    rows = [_lock_connection(connection, tenant, place) for place in sorted(places)]
    connection.execute(_INSERT_USE, [{"tenant": tenant, "place": place, "path": path} for place in places])
    ready = {row.place for row in rows if not row.holder and all(map(row.resources.get, SHARED_RESOURCE_TYPES))}
    return [place for place in places if place not in ready]


def list_used_places(connection: sa.Connection) -> list[str]:
    """Lists the places that MCIs use."""
    return list(connection.execute(_SELECT_USED_PLACES).scalars())


def list_mci_places(connection: sa.Connection, path: str) -> list[str]:
    """Returns the places whose connections the MCI uses."""
    return list(connection.execute(_SELECT_PLACES, {"mine": path}).scalars())


def list_places_used_alone(connection: sa.Connection, path: str) -> list[str]:
    """Returns the places that no other MCI of its tenant uses."""
    others = {"of_tenant": tenant_of(path), "mine": path}
    return [
        place
        for place in list_mci_places(connection, path)
        if connection.execute(_SELECT_OTHER_USERS, {**others, "at_place": place}).first() is None
    ]


def forget_place_uses(connection: sa.Connection, path: str) -> None:
    """Removes all uses of an MCI that is gone, atomically for other MCIs that leave at the same time."""
    for place in list_mci_places(connection, path):
        _lock_connection(connection, tenant_of(path), place)
    connection.execute(_DELETE_USES, {"mine": path})


def read_shared_resources(connection: sa.Connection, tenant: str, place: str) -> dict[str, str]:
    """Returns what a tenant's VMs share in a place: name -> cloud id."""
    return dict(connection.execute(_SELECT_RESOURCES, _connection_condition(tenant, place)).scalar_one_or_none() or {})


def acquire_connection_lock(connection: sa.Connection, wish: ConnectionLockRequest) -> ConnectionLock | None:
    """Acquires a connection's hold. Returns None if another holder has it; raises Superseded if the action is over.

    The same holder gets it again at once with a new epoch, which fences off the worker that had it before.
    """
    lock_open_action(connection, wish.path, wish.epoch)
    row = _lock_connection(connection, wish.tenant, wish.place)
    at = dbtime.read_database_time(connection)
    if row.holder not in ("", wish.holder) and row.held_until is not None and at < row.held_until:
        return None
    generation = row.generation if row.resources else wish.epoch  # created anew: other tokens
    epoch = max(
        row.epoch + 1, dbtime.read_database_micros(connection)
    )  # also above epochs that a restored store has lost
    held = {"holder": wish.holder, "held_until": at + wish.lasts, "generation": generation, "epoch": epoch}
    connection.execute(_UPDATE_CONNECTION, _connection_condition(wish.tenant, wish.place) | held)
    return ConnectionLock(wish.tenant, wish.place, generation, epoch, dict(row.resources))


def renew_connection_lock(connection: sa.Connection, held: ConnectionLock, lasts: timedelta) -> bool:
    """Extends a hold. Returns False if it was lost."""
    until = _connection_condition(held.tenant, held.place) | {
        "held_until": dbtime.read_database_time(connection) + lasts
    }
    return (
        connection.execute(_UPDATE_CONNECTION.where(connections.c.epoch == held.epoch, _IS_HELD), until).rowcount == 1
    )


def record_shared_resource(
    connection: sa.Connection, held: ConnectionLock, lasts: timedelta, what: str, cloud_id: str | None
) -> bool:
    """Records a shared resource as ordered (empty id), created or removed (None). Returns False without the hold."""
    row = _lock_connection(connection, held.tenant, held.place)
    if not _is_locked_by(row, held):
        return False
    known = {name: kept for name, kept in row.resources.items() if name != what}
    if cloud_id is not None:
        known[what] = cloud_id
    until = dbtime.read_database_time(connection) + lasts
    news = {"resources": known, "held_until": until}
    connection.execute(_UPDATE_CONNECTION, _connection_condition(held.tenant, held.place) | news)
    return True


def release_connection_lock(connection: sa.Connection, held: ConnectionLock) -> None:
    """Releases a hold, unless it was lost."""
    free = _connection_condition(held.tenant, held.place) | {"holder": "", "held_until": None}
    connection.execute(_UPDATE_CONNECTION.where(connections.c.epoch == held.epoch), free)


def _is_locked_by(row: ConnectionRow, held: ConnectionLock) -> bool:
    return bool(row.holder) and row.epoch == held.epoch


def leave_place(connection: sa.Connection, wish: ConnectionLockRequest) -> LeavePlaceResult | ConnectionLock | None:
    """Removes the MCI's use of a place, unless it still has VMs. Raises Superseded if the action is over.

    For the last user of the tenant it acquires the connection's hold instead, to clean up; None if another one has it.
    """
    lock_open_action(connection, wish.path, wish.epoch)
    _lock_connection(connection, wish.tenant, wish.place)
    if connection.execute(_SELECT_ONE_VM, {"mine": wish.path}).first():
        return LeavePlaceResult.OCCUPIED
    use = _connection_condition(wish.tenant, wish.place) | {"mine": wish.path}
    if connection.execute(_SELECT_OTHER_USERS, use).first() is None:
        return acquire_connection_lock(connection, wish)
    connection.execute(_DELETE_USE, use)
    return LeavePlaceResult.SHARED


def finish_leaving_place(connection: sa.Connection, held: ConnectionLock, wish: ConnectionLockRequest) -> bool:
    """Removes the last MCI's use after clean-up, and releases the hold. Returns False if the hold was lost.

    Raises Superseded if the action is over: the use may be that of a new MCI of the same name.
    """
    lock_open_action(connection, wish.path, wish.epoch)
    if not _is_locked_by(_lock_connection(connection, held.tenant, held.place), held):
        return False
    connection.execute(_DELETE_USE, _connection_condition(held.tenant, held.place) | {"mine": wish.path})
    release_connection_lock(connection, held)
    return True


def _lock_connection(connection: sa.Connection, tenant: str, place: str) -> ConnectionRow:
    """Locks and returns a tenant's row of a place; inserts it if there is none."""
    which = _connection_condition(tenant, place)
    row = connection.execute(_LOCK_CONNECTION, which).one_or_none()
    if row is None:
        connection.execute(_INSERT_CONNECTION, which)
        row = connection.execute(_LOCK_CONNECTION, which).one()
    return ConnectionRow(*row)


def _connection_condition(tenant: str, place: str) -> dict[str, Any]:
    return {"of_tenant": tenant, "at_place": place}


def _names_of_requirements(wanted: PlaceRequirements) -> list[str]:
    return [*(f"spec:{name}" for name in wanted.specs), *(f"image:{name}" for name in wanted.images)]


def _was_verified(checked: Mapping[str, str], wanted: PlaceRequirements, at: datetime) -> bool:
    oldest = (at - VERIFIED_FOR).isoformat()
    return all(checked.get(word, "") > oldest for word in _names_of_requirements(wanted))
