"""The life of a worker process: start, serve until told to stop, drain, exit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import structlog
from temporalio.client import Client, Plugin

from client import tracing
from client.connection import connect_temporal
from client.identity import agree
from client.payloads import converter
from client.signals import stopped
from domain.errors import Category, Refused
from store.engine import Database
from store.identity import identity, mark_restored
from store.migrate import known_versions, migrate, newer, version
from workers import embedded, logs, telemetry
from workers.connections import check, load
from workers.families import FAMILIES, hooks_of
from workers.home import hold_folder
from workers.plugin import plugin
from workers.service import Service, all_queues
from workers.settings import Settings, redacted

Make = Callable[[Client, Settings], Service]


@dataclass(frozen=True)
class Stack:
    """An embedded server and a worker in this process."""

    client: Client
    address: str
    ui: str
    http: str
    service: Service


async def work(settings: Settings, queues: Sequence[str] = (), make: Make = Service) -> None:
    """Serves these queues, or all, until SIGTERM or SIGINT."""
    queues = checked_queues(settings, queues)
    check(settings.connections, queues)
    logs.configure(settings.log_level, settings.log_format)
    log = structlog.get_logger("worker")
    client = await connect_temporal(settings.home, *_plugins(settings), runtime=telemetry.runtime(settings))
    async with _service(client, settings, make) as service:
        stop = stopped()
        async with service.serve(queues):
            log.info("serving", queues=list(queues), store=redacted(settings.store()))
            await stop.wait()
            log.info("stopping: what runs is finished or handed over")
    tracing.flush(settings)
    log.info("stopped")


@asynccontextmanager
async def stack(settings: Settings, port: int = 0, ui_port: int = 0) -> AsyncIterator[Stack]:
    """Runs the embedded server and a worker for every queue while the block lasts."""
    check(settings.connections, checked_queues(settings))
    with hold_folder(settings.home):
        server = await embedded.start(settings.home, port, ui_port, embedded.USUAL)
        try:
            client = await Client.connect(
                server.address, plugins=_plugins(settings), runtime=telemetry.runtime(settings)
            )
            async with _service(client, settings) as service, service.serve():
                yield Stack(client, server.address, server.ui, server.http, service)
        finally:
            await server.stop()


def migrate_store(settings: Settings) -> tuple[str, str]:
    """Upgrades the store to this program's schema. Returns the versions before and after."""
    database = Database(settings.store())
    try:
        return migrate(database)
    finally:
        database.close()


def restored_store(settings: Settings) -> tuple[int, int]:
    """Marks the store as restored, which fences off older runs. Returns its incarnation, and actions abandoned."""
    database = Database(settings.store())
    try:
        after, ended = database.run_here(partial(mark_restored, hooks=hooks_of(FAMILIES)))
        return after.incarnation, ended
    finally:
        database.close()


def check_store(settings: Settings) -> None:
    """Raises Refused or StoreUnavailable if the store cannot be used; accepts any schema up to ours."""
    database = Database(settings.store())
    try:
        if (found := version(database)) not in ("", *known_versions()):
            raise newer(found)
    finally:
        database.close()


def checked_queues(settings: Settings, queues: Sequence[str] = ()) -> Sequence[str]:
    """Returns the queues, or all. Refuses unknown ones, which would never get work."""
    known = all_queues(load(settings.connections))
    if unknown := [queue for queue in queues if queue not in known]:
        raise Refused(Category.INVALID, f"unknown queue {unknown[0][:40]!r}", f"queues are: {', '.join(known)}")
    return queues or known


def _plugins(settings: Settings) -> list[Plugin]:
    return [*tracing.plugins(settings), plugin(settings.sandbox, converter(settings))]


@asynccontextmanager
async def _service(client: Client, settings: Settings, make: Make = Service) -> AsyncIterator[Service]:
    service = make(client, settings)
    try:
        service.prepare()
        found = await service.database.run(identity)
        await agree(client, found.id, redacted(settings.store()))
        yield service
    finally:
        await service.close()
