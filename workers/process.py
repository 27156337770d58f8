"""The life of a worker process: start, serve until told to stop, drain, exit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial

import structlog
from temporalio.client import Client, Plugin

from client import tracing
from client.connection import connect_temporal
from client.payloads import data_converter
from client.stopsignals import make_stop_event
from client.storeregistry import other_store_refusal, read_registered_store, register_store
from domain.errors import Category, Refused
from store.engine import Database
from store.identity import mark_restored, read_identity
from store.migrate import known_schema_versions, migrate_schema, newer_schema_refusal, read_schema_version
from workers import embedded, logs, telemetry
from workers.connections import check_connections, load_connections
from workers.datafolder import harden_process, lock_data_folder, secure_data_folder
from workers.families import FAMILIES, merge_hooks
from workers.plugin import temporal_plugin
from workers.service import WorkerService, all_queues
from workers.settings import WorkerSettings, redact_url

EXIT_GRACE_SECONDS = 20.0  # for what follows the drain of a worker that has failed

MakeService = Callable[[Client, WorkerSettings], WorkerService]


@dataclass(frozen=True)
class EmbeddedStack:
    """An embedded server and a worker in this process."""

    client: Client
    address: str
    ui: str
    http: str
    service: WorkerService


async def run_worker(settings: WorkerSettings, queues: Sequence[str] = (), make: MakeService = WorkerService) -> None:
    """Serves these queues, or all, until SIGTERM or SIGINT. Raises PollingStopped if a queue is polled no longer."""
    harden_process()
    secure_data_folder(settings.home)
    queues = validate_queues(settings, queues)
    check_connections(settings.connections, queues)
    logs.configure_logging(settings.log_level, settings.log_format)
    log = structlog.get_logger("worker")
    client = await connect_temporal(settings.home, *_plugins(settings), runtime=telemetry.worker_runtime(settings))
    async with _run_service(client, settings, make) as service:
        stop = make_stop_event()
        service.exit_after = settings.drain + EXIT_GRACE_SECONDS
        async with service.serve_queues(queues):
            log.info("serving", queues=list(queues), store=redact_url(settings.store_database_url()))
            await stop.wait()
            log.info("stopping: what runs is finished or handed over")
    tracing.flush_spans(settings)
    log.info("stopped")


@asynccontextmanager
async def run_stack(settings: WorkerSettings, port: int = 0, ui_port: int = 0) -> AsyncIterator[EmbeddedStack]:
    """Runs the embedded server and a worker for every queue while the block lasts."""
    harden_process()
    check_connections(settings.connections, validate_queues(settings))
    with lock_data_folder(settings.home):
        check_store(settings)  # before a server starts for nothing
        server = await embedded.start_server(settings.home, port, ui_port, embedded.DEFAULT_PORTS)
        try:
            client = await Client.connect(
                server.address, plugins=_plugins(settings), runtime=telemetry.worker_runtime(settings)
            )
            async with _run_service(client, settings) as service, service.serve_queues():
                yield EmbeddedStack(client, server.address, server.ui, server.http, service)
        finally:
            await server.stop_server()


def migrate_store(settings: WorkerSettings) -> tuple[str, str]:
    """Upgrades the store to this program's schema. Returns the versions before and after."""
    with closing(Database(settings.store_database_url())) as database:
        return migrate_schema(database)


def mark_store_restored(settings: WorkerSettings) -> tuple[int, int]:
    """Marks the store as restored, which fences off older runs. Returns its incarnation, and actions abandoned."""
    with closing(Database(settings.store_database_url())) as database:
        after, ended = database.run_transaction_blocking(partial(mark_restored, hooks=merge_hooks(FAMILIES)))
        return after.incarnation, ended


def check_store(settings: WorkerSettings) -> None:
    """Raises Refused or StoreUnavailable if the store cannot be used; accepts any schema up to ours."""
    with closing(Database(settings.store_database_url())) as database:
        found = read_schema_version(database)
    if found not in ("", *known_schema_versions()):
        raise newer_schema_refusal(found)


def validate_queues(settings: WorkerSettings, queues: Sequence[str] = ()) -> Sequence[str]:
    """Returns the queues, or all. Refuses unknown ones, which would never get work."""
    known = all_queues(load_connections(settings.connections), settings)
    if unknown := [queue for queue in queues if queue not in known]:
        raise Refused(Category.INVALID, f"unknown queue {unknown[0][:40]!r}", f"queues are: {', '.join(known)}")
    return queues or known


def _plugins(settings: WorkerSettings) -> list[Plugin]:
    return [*tracing.tracing_plugins(settings), temporal_plugin(settings.sandbox, data_converter(settings))]


@asynccontextmanager
async def _run_service(
    client: Client, settings: WorkerSettings, make: MakeService = WorkerService
) -> AsyncIterator[WorkerService]:
    service = make(client, settings)
    try:
        await _check_registered_store(client, service)
        service.prepare_databases()
        identity = await service.bind_to_store()
        await register_store(client, identity.id, redact_url(settings.store_database_url()))
        yield service
    finally:
        await service.close()


async def _check_registered_store(client: Client, service: WorkerService) -> None:
    """Refuses a store that is not the namespace's before it is migrated: it may be another deployment's."""
    if (registered := await read_registered_store(client)) is None:
        return
    found = ""
    if await asyncio.to_thread(read_schema_version, service.database):
        found = (await service.database.run_transaction(read_identity)).id
    if found != registered:
        where = redact_url(service.settings.store_database_url())
        raise other_store_refusal(client, registered, where, found)
