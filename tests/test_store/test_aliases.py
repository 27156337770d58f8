"""Ids of objects in the gateway's dialects: given with the object, and never to another one."""

from __future__ import annotations

import uuid

from domain.aliases import Alias, AliasQuery, Dialect
from domain.leases.tables import EVENTS
from tests.test_leases import bookings
from tests.test_store.driver import StoreDriver

LEASE, HOST = bookings.lease("l1"), "pool:main:host:h1"
PARTS = [f"{LEASE}:reservation:r1", *(f"{LEASE}:event:{name}" for name in EVENTS)]


async def aliases_of(driver: StoreDriver, *paths: str, dialect: Dialect = Dialect.BLAZAR) -> dict[str, Alias]:
    found = await driver.inventory.find_aliases(AliasQuery(dialect=dialect, paths=list(paths)))
    return {alias.path: alias for alias in found}


async def find(driver: StoreDriver, *ids: str, dialect: Dialect = Dialect.BLAZAR) -> list[str]:
    return [alias.path for alias in await driver.inventory.find_aliases(AliasQuery(dialect=dialect, ids=list(ids)))]


async def test_objects_get_ids_when_they_come_into_being(driver: StoreDriver) -> None:
    await bookings.host(driver, "h1")
    await bookings.book(driver, "l1", 1, 2)
    found = await aliases_of(driver, LEASE, *PARTS, HOST)
    assert set(found) == {LEASE, *PARTS, HOST}
    assert found[HOST].id.isdecimal()
    for path in (LEASE, *PARTS):
        assert str(uuid.UUID(found[path].id)) == found[path].id
    assert len({alias.id for alias in found.values()}) == len(found)
    view = await driver.inventory.read_object(LEASE)
    assert found[LEASE].generation == view.info["generation"]
    assert await find(driver, found[LEASE].id, found[HOST].id) == [HOST, LEASE]
    assert await find(driver, found[LEASE].id, "1", dialect=Dialect.G8) == []
    assert await find(driver, "nonsense", "9" * 30, str(uuid.uuid4())) == []


async def test_a_new_object_at_an_old_path_has_another_id(driver: StoreDriver) -> None:
    await bookings.host(driver, "h1")
    first = (await aliases_of(driver, HOST))[HOST]
    await bookings.finish(driver, await driver.grant(HOST, "remove"))
    await bookings.host(driver, "h1")
    second = (await aliases_of(driver, HOST))[HOST]
    assert int(second.id) > int(first.id)
    assert second.generation > first.generation
    assert await find(driver, first.id) == [HOST]


async def test_a_name_that_is_a_uuid_is_the_id_once(driver: StoreDriver) -> None:
    await bookings.host(driver, "h1")
    name = str(uuid.uuid4())
    await bookings.book(driver, name, 1, 2)
    path = bookings.lease(name)
    assert (await aliases_of(driver, path))[path].id == name
    other = f"project:p2:lease:{name}"
    await driver.grant(other, "create", spec={"start": bookings.at(3), "end": bookings.at(4), "hosts": 1})
    assert (await aliases_of(driver, other))[other].id != name


async def test_a_dry_run_gives_no_id(driver: StoreDriver) -> None:
    await bookings.host(driver, "h1")
    checked = await driver.check(LEASE, "create", spec={"start": bookings.at(1), "end": bookings.at(2), "hosts": 1})
    assert checked.grant
    assert await aliases_of(driver, LEASE) == {}
