"""Two workers at one place: a worker that lost it touches nothing there, even if it froze in a call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from temporalio.exceptions import ApplicationError

from activities.fence import Fence
from activities.mci.places import PlaceActivities
from activities.permits import PermitPool
from activities.retry import ProviderRetry
from domain.limits import ConcurrencyCaps
from domain.mci.messages import (
    ConnectionLock,
    ConnectionLockRequest,
    LeavePlaceResult,
    MciAtPlace,
    PlaceRequirements,
    PlaceResult,
)
from domain.ports import SHARED_RESOURCE_TYPES, Cloud, Inventory, SharedResource
from providers.simulated import SimulatedCloud, create_tables
from store.engine import Database
from store.mci import connections as places
from store.mci.inventory import SqlMciStore
from store.mci.tables import connection_uses, connections
from store.migrate import migrate_schema
from store.schema import ActionRow, actions
from tests.environment import activity_environment
from tests.localpermits import LocalPermitStore
from tests.patience import PATIENCE

PLACE = "aws/r1"
WEB, OTHER = "ns:default:mci:web", "ns:default:mci:other"


class Freezing:
    """A cloud at whose door the worker freezes: with the key in its hand, before it asks for its removal."""

    def __init__(self, cloud: SimulatedCloud, what: str) -> None:
        self._cloud = cloud
        self._what = what
        self.frozen, self.awake = asyncio.Event(), asyncio.Event()
        self.bulk = 1

    async def list_missing_offers(self, _region: str, _specs: list[str], _images: list[str]) -> list[str]:
        return []

    async def prepare_resource(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        return await self._cloud.prepare_resource(region, resource, made)

    async def release_resource(self, region: str, resource: SharedResource) -> None:
        if resource.what == self._what:
            self.frozen.set()
            await self.awake.wait()
        await self._cloud.release_resource(region, resource)


class Actions:
    """An inventory in which every action is open, but those that are over."""

    def __init__(self, *over: int) -> None:
        self._over = over

    async def is_action_open(self, _path: str, epoch: int) -> bool:
        return epoch not in self._over


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/places.db")
    migrate_schema(database)
    database.run_transaction_blocking(create_tables)
    rows = [_open_action(epoch, path) for epoch, path in ((1, WEB), (2, WEB), (3, OTHER))]
    database.run_transaction_blocking(lambda connection: connection.execute(sa.insert(actions).values(rows)))
    yield database
    database.close()


def _open_action(epoch: int, path: str) -> dict[str, Any]:
    named = (epoch, f"run-{epoch}", path, "create", False, "", "", "", "")
    return ActionRow(*named, datetime.now(UTC), None, {}, None, None, 0)._asdict()


def worker(database: Database, cloud: object, over: int = 0, store: SqlMciStore | None = None) -> PlaceActivities:
    async def beat() -> bool:
        return True

    fence = Fence(cast(Inventory, Actions(over)), beat)
    store = store or SqlMciStore(database)
    return PlaceActivities(
        store, {"aws": cast(Cloud, cloud)}, PermitPool(ConcurrencyCaps(), LocalPermitStore()), fence, ProviderRetry()
    )


def visit(path: str, epoch: int) -> MciAtPlace:
    return MciAtPlace(path=path, epoch=epoch, wants=PlaceRequirements(place=PLACE, specs=[], images=[]))


async def test_a_worker_that_froze_while_it_removed_a_key_does_not_remove_it_from_an_mci_that_came_since(
    database: Database,
) -> None:
    cloud = SimulatedCloud("aws", database)
    slow, quick = Freezing(cloud, "sshKey"), Freezing(cloud, "nothing")
    book, first, second = SqlMciStore(database), worker(database, slow), worker(database, quick)
    await database.run_transaction(partial(places.record_place_uses, path=WEB, places=[PLACE]))
    assert await activity_environment().run(first.prepare_place, visit(WEB, 1)) == PlaceResult()

    leaving = asyncio.create_task(activity_environment().run(first.release_place, visit(WEB, 2)))
    await slow.frozen.wait()
    gone = sa.update(connections).values(held_until=datetime.now(UTC) - timedelta(seconds=1))
    await database.run_transaction(lambda connection: connection.execute(gone))
    assert await database.run_transaction(partial(places.record_place_uses, path=OTHER, places=[PLACE])) == [PLACE]
    assert await activity_environment().run(second.prepare_place, visit(OTHER, 3)) == PlaceResult()

    slow.awake.set()
    with pytest.raises(ApplicationError, match="comes too late"):
        await leaving
    assert {what for _, what, _ in await cloud.list_shared_resources()} == set(SHARED_RESOURCE_TYPES)
    assert set(await book.read_shared_resources("ns:default", PLACE)) == set(SHARED_RESOURCE_TYPES)
    assert all((await book.read_shared_resources("ns:default", PLACE)).values())
    await cloud.close()


async def changes_nothing(database: Database, activity: Callable[..., Any]) -> None:
    """The activity of a worker whose action is over fails, and leaves the rows of its place as they are."""
    for path in (WEB, OTHER):
        await database.run_transaction(partial(places.record_place_uses, path=path, places=[PLACE]))
    before = await database.run_transaction(_rows_of_places)
    with pytest.raises(ApplicationError, match="is over"):
        await activity_environment().run(activity, visit(WEB, 1))
    assert await database.run_transaction(_rows_of_places) == before


@pytest.mark.parametrize("left", ["prepare_place", "release_place"])
async def test_a_worker_that_wakes_when_its_action_is_over_changes_nothing_of_the_place(
    database: Database, left: str
) -> None:
    """Neither the use of an MCI that was made anew under the same name, nor the hold for which others would wait."""
    cloud = SimulatedCloud("aws", database)
    await changes_nothing(database, getattr(worker(database, cloud, over=1), left))
    await cloud.close()


class FreezingStore(SqlMciStore):
    """The store of a worker that freezes after its proof, until its action is over."""

    async def _freeze(self, epoch: int) -> None:
        over = sa.update(actions).where(actions.c.epoch == epoch).values(ended_at=datetime.now(UTC))
        await self.database.run_transaction(lambda connection: connection.execute(over))

    async def acquire_connection_lock(self, wish: ConnectionLockRequest) -> ConnectionLock | None:
        await self._freeze(wish.epoch)
        return await super().acquire_connection_lock(wish)

    async def leave_place(self, wish: ConnectionLockRequest) -> LeavePlaceResult | ConnectionLock | None:
        await self._freeze(wish.epoch)
        return await super().leave_place(wish)


@pytest.mark.parametrize("left", ["prepare_place", "release_place"])
async def test_a_worker_that_froze_after_its_proof_changes_nothing_of_the_place(database: Database, left: str) -> None:
    cloud = SimulatedCloud("aws", database)
    await changes_nothing(database, getattr(worker(database, cloud, store=FreezingStore(database)), left))
    await cloud.close()


class LateStore(SqlMciStore):
    """A store whose transactions that take a hold commit late."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.begun, self.may_commit = threading.Event(), threading.Event()

    def _commit_late(self, take: Callable[[sa.Connection], Any], connection: sa.Connection) -> Any:
        self.begun.set()
        assert self.may_commit.wait(PATIENCE)
        return take(connection)

    async def acquire_connection_lock(self, wish: ConnectionLockRequest) -> ConnectionLock | None:
        take = partial(places.acquire_connection_lock, wish=wish)
        return await self.database.run_transaction(partial(self._commit_late, take))

    async def leave_place(self, wish: ConnectionLockRequest) -> LeavePlaceResult | ConnectionLock | None:
        take = partial(places.leave_place, wish=wish)
        return await self.database.run_transaction(partial(self._commit_late, take))


@pytest.mark.parametrize("left", ["prepare_place", "release_place"])
async def test_one_that_is_cancelled_while_it_takes_a_place_leaves_it_to_others(database: Database, left: str) -> None:
    cloud, store = SimulatedCloud("aws", database), LateStore(database)
    await database.run_transaction(partial(places.record_place_uses, path=WEB, places=[PLACE]))
    taking = asyncio.create_task(
        activity_environment().run(getattr(worker(database, cloud, store=store), left), visit(WEB, 1))
    )
    assert await asyncio.to_thread(store.begun.wait, PATIENCE)
    taking.cancel()
    await asyncio.sleep(0)
    store.may_commit.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    holders = sa.select(connections.c.holder)
    assert await database.run_transaction(lambda connection: connection.execute(holders).scalars().all()) == [""]
    await cloud.close()


def _rows_of_places(connection: sa.Connection) -> list[tuple[object, ...]]:
    return [tuple(row) for table in (connections, connection_uses) for row in connection.execute(sa.select(table))]
