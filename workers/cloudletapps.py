"""The apps of a cloudlet on this machine: the supervisor of a CRM, which its successor takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from domain.errors import Category, Refused, Rejected
from domain.services.definition import BackendName
from domain.wire import SIMULATED
from providers.edge.apps import CloudletApps
from providers.edge.platform import BACKEND_VALUE, CloudletPlatform
from providers.services.container import ContainerRunner
from providers.services.ledger import BackendLedger, create_tables
from providers.services.process import ProcessRunner
from providers.services.supervisor import Supervisor
from store.engine import Database
from workers.background import run_in_background
from workers.settings import WorkerSettings
from workers.supervision import container_rules, process_rules, supervise_forever


@asynccontextmanager
async def supervise_apps(
    settings: WorkerSettings, cloudlet: str, backend: BackendName, platform: CloudletPlatform
) -> AsyncIterator[CloudletApps | None]:
    """Supervises a cloudlet's apps while the block lasts; they stay when it ends. Yields None if they are simulated."""
    _refuse_another_backend(platform, backend)
    if backend == SIMULATED:
        platform.write_crm_value(BACKEND_VALUE, backend)
        yield None
        return
    folder = platform.file.with_suffix(".apps").absolute()
    runner = _make_instance_runner(settings, backend, folder)
    try:
        await runner.prepare_system(cloudlet, 0)
    except Rejected as error:
        raise Refused(Category.INVALID, str(error), "starter crm run --help lists the backends") from error
    platform.write_crm_value(BACKEND_VALUE, backend)
    # Beside the CRM's records: both are there, or neither.
    with closing(Database(f"sqlite:///{platform.file}")) as database:
        await database.run_transaction(create_tables)
        supervisor = Supervisor(runner, BackendLedger(backend, database), folder / ".supervisor.lock")
        async with run_in_background(supervise_forever(supervisor, lambda _facts, _gone: asyncio.sleep(0))):
            yield CloudletApps(supervisor)


def _make_instance_runner(settings: WorkerSettings, backend: BackendName, folder: Path) -> ProcessRunner:
    rules = process_rules(settings)
    if backend == "container":
        return ContainerRunner(folder, rules, container_rules(settings))
    return ProcessRunner(folder, rules)


def _refuse_another_backend(platform: CloudletPlatform, backend: BackendName) -> None:
    """Refuses a backend that does not know the apps which are there: nobody would watch them."""
    before = platform.read_crm_value(BACKEND_VALUE, SIMULATED)
    if before != backend and platform.list_instances():
        message = f"the apps of this cloudlet run on the backend {before}, not {backend}"
        raise Refused(Category.NOT_ALLOWED, message, f"run its CRM with --backend {before}, or delete its apps first")
