"""One namespace, one store: a worker with another store does not start, and one whose store is swapped ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from client.actions import ActionClient
from client.connection import connect_temporal
from client.storeregistry import forget_registered_store, read_registered_store, register_store
from domain.errors import Refused
from starter.doctor import _check_store
from store.engine import Database
from store.migrate import migrate_schema, read_schema_version
from tests.patience import PATIENCE
from tests.stack import fresh_database
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import Site, Worker, open_site
from workers import embedded
from workers.plugin import temporal_plugin
from workers.process import _run_service
from workers.service import WorkerService
from workers.settings import WorkerSettings


async def serve_until_it_ends(service: WorkerService) -> None:
    async with asyncio.timeout(PATIENCE), service.serve_queues():
        await asyncio.Event().wait()


async def test_the_first_worker_tells_and_another_store_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    server = await embedded.start_server(home)
    client = await connect_temporal(home, temporal_plugin())
    try:
        settings = WorkerSettings(home=home, simulated_latency=0)
        assert await read_registered_store(client) is None
        async with _run_service(client, settings) as service:
            mine = await read_registered_store(client)
            assert mine
            async with service.serve_queues():
                found = await _check_store(ActionClient(client))
                assert (found.mend, f"store {mine}" in found.found) == ("", True)
        async with _run_service(client, settings):  # the same store again
            pass
        elsewhere = WorkerSettings(home=home, store_url=f"sqlite:///{tmp_path}/empty.db")
        with pytest.raises(Refused, match=f"use the store {mine}, but sqlite:///") as caught:
            async with _run_service(client, elsewhere):
                pass
        assert "RATCHET_STORE_URL" in caught.value.hint
        assert "starter setup --forget-store" in caught.value.hint
        assert await forget_registered_store(client)
        assert not await forget_registered_store(client)
        async with _run_service(client, elsewhere) as service:
            service.store_watch, watch = None, service.store_watch  # which would end it
            async with service.serve_queues():
                await forget_registered_store(client)
                await register_store(client, "of-others", "somewhere")
                found = await _check_store(ActionClient(client))
                assert "but the namespace's store is of-others" in found.found
                assert "--forget-store" in found.mend
            service.store_watch = watch
            with pytest.raises(Refused, match="use the store of-others, but sqlite:///"):
                await serve_until_it_ends(service)
    finally:
        await server.stop_server()


@dataclass
class SwappedSite:
    """A site, and its store with the ways in which operators swap it."""

    site: Site
    url: str
    empty_url: str  # of another database

    def back_up(self) -> None:
        """Of a store that nobody uses yet."""
        migrate_schema(self.site.database)
        self.site.database.engine.dispose()
        if self.site.database.sqlite:
            with self.site.database.engine.connect() as connection:
                connection.exec_driver_sql("COMMIT")
                connection.exec_driver_sql(f"VACUUM INTO '{self._backup_file}'")
                connection.exec_driver_sql("BEGIN")
        else:
            self._on_server("CREATE DATABASE {0}_backup TEMPLATE {0}")

    def swap(self, how: str) -> None:
        """Put an empty database, or the backup, where the store is, while everything runs."""
        if self.site.database.sqlite:
            for log in ("-wal", "-shm"):
                self._file.with_name(f"{self._file.name}{log}").unlink()
            if how == "empty":
                self._file.unlink()
            else:
                self._backup_file.rename(self._file)
        else:
            template = "" if how == "empty" else "TEMPLATE {0}_backup"
            self._on_server("DROP DATABASE {0} WITH (FORCE)", f"CREATE DATABASE {{0}} {template}")

    def version(self, url: str) -> str:
        database = Database(url)
        try:
            return read_schema_version(database)
        finally:
            database.close()

    @property
    def _file(self) -> Path:
        return Path(sa.make_url(self.url).database or "")

    @property
    def _backup_file(self) -> Path:
        return self._file.with_suffix(".backup")

    def _on_server(self, *statements: str) -> None:
        url = sa.make_url(self.url)
        server = url.set(drivername="postgresql+psycopg", database="postgres")
        engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement.format(url.database))


@pytest.fixture(params=["sqlite", "postgres"])
async def swapped(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, forkserver: ForkServer
) -> AsyncIterator[SwappedSite]:
    files = [f"sqlite:///{tmp_path}/{name}.db" for name in ("inventory", "elsewhere")]
    url, empty = files if request.param == "sqlite" else (fresh_database(postgres_url), fresh_database(postgres_url))
    clouds = {"RATCHET_CLOUD_URL": f"sqlite:///{tmp_path}/cloud.db", "RATCHET_SIMULATED_LATENCY": "0"}
    async with open_site(tmp_path, forkserver, url, **clouds, RATCHET_DRAIN="1") as site:
        site.database.close()
        site.database = Database(url)
        yield SwappedSite(site, url, empty)


async def ended(worker: Worker) -> int | None:
    async with asyncio.timeout(PATIENCE):
        return await worker.process.wait()


@pytest.mark.parametrize("other", ["empty", "of-others"])
async def test_a_worker_process_with_another_store_does_not_start_and_leaves_it_alone(
    swapped: SwappedSite, other: str
) -> None:
    site = swapped.site
    async with site.worker():
        if other == "of-others":
            database = Database(swapped.empty_url)
            migrate_schema(database)
            database.close()
        lost = await site.start(RATCHET_STORE_URL=swapped.empty_url)
        assert await ended(lost) not in (0, None)
        assert "use the store" in lost.said()
        assert "set RATCHET_STORE_URL as on the others" in lost.said()
        assert '"serving"' not in lost.said()
        if other == "empty":
            assert "is empty" in lost.said()
            assert swapped.version(swapped.empty_url) == ""
        assert (await site.do("ns:default:mci:web", "create")).status == "Running:2 (R:2/2)"  # by the one that serves


@pytest.mark.parametrize("how", ["empty", "restored"])
async def test_a_worker_whose_store_is_swapped_while_it_runs_ends_and_acts_in_neither(
    swapped: SwappedSite, how: str
) -> None:
    site = swapped.site
    swapped.back_up()
    async with site.worker() as worker:
        await site.do("ns:default:mci:web", "create")
        site.database.engine.dispose()
        swapped.swap(how)
        ticket = asyncio.create_task(site.ask("ns:default:mci:late", "create"))  # stays in Temporal for a good worker
        assert await ended(worker) == 1
        assert "the store was replaced while this process ran" in worker.said()
        assert "starter migrate --restored" in worker.said()
        ticket.cancel()
        await asyncio.gather(ticket, return_exceptions=True)
    if how == "empty":
        assert swapped.version(swapped.url) == ""  # nothing was written into it
        again = await site.start()
        assert await ended(again) not in (0, None)  # nor may a worker that a supervisor starts again
        assert "is empty" in again.said()
    else:
        assert await site.inventory.list_objects("mci") == []
        assert (await site.starter("migrate", "--restored"))[0] == 0
        async with site.worker():
            assert (await site.do("ns:default:mci:new", "create")).status == "Running:2 (R:2/2)"
