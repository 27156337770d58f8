"""What a worker needs for systems: workflows, activities on a queue for each backend, and their keepers beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from activities.systems.backend import BackendActivities, BackendAudit, SystemWrites
from activities.verify import Audit
from domain.errors import RatchetError
from domain.model import WHEN_WRITTEN
from domain.systems.ports import backend_queue
from domain.systems.rules import ServiceFacts
from domain.wire import ACTIONS_QUEUE
from providers.systems.process import ProcessRunner
from providers.systems.runner import Runner
from providers.systems.simulated import SimulatedRunner
from providers.systems.state import BackendState, create_tables
from providers.systems.supervisor import Supervisor
from store.systems.hooks import SqlSystems
from workers.context import WorkerContext
from workflows.systems.actions import CreateSystem, DeleteSystem, DeployPart, TearDownSystem

WORKFLOWS: list[type] = [CreateSystem, DeployPart, TearDownSystem, DeleteSystem]
BACKENDS = ("simulated", "process")
QUEUES = tuple(map(backend_queue, BACKENDS))
LOOK = 10.0  # seconds between looks at everything, in case that a change was told when nobody could write it


def activities(context: WorkerContext) -> dict[str, list[Callable[..., Any]]]:
    """Queue by queue."""
    store = SqlSystems(context.database)
    writes = SystemWrites(store)
    books = BackendAudit(supervisors(context), store)
    found: dict[str, list[Callable[..., Any]]] = {
        ACTIONS_QUEUE: [writes.accept_deploy, writes.accept_removal, writes.revert_deploy, books.read_services]
    }
    for name, supervisor in supervisors(context).items():
        work = BackendActivities(supervisor, store, context.inventory, context.fence)
        found[backend_queue(name)] = [
            work.prepare_system,
            work.roll_out,
            work.assess_parts,
            work.settle_parts,
            work.remove_parts,
            work.settle_removal,
        ]
    return found


def audits(context: WorkerContext) -> list[Audit]:
    """Services against the backends' books."""
    return [BackendAudit(supervisors(context), SqlSystems(context.database)).audit]


def supervisors(context: WorkerContext) -> dict[str, Supervisor]:
    """One for each backend, the same for everybody in this process."""
    if "systems" not in context.own:
        home = context.settings.home
        runners: tuple[Runner, ...] = (
            SimulatedRunner(context.settings.simulated_latency),
            ProcessRunner(home / "services"),
        )
        context.own["systems"] = {
            runner.name: Supervisor(
                runner, BackendState(runner.name, context.cloud_database), home / f"keeper-{runner.name}.lock"
            )
            for runner in runners
        }
    made: dict[str, Supervisor] = context.own["systems"]
    return made


@asynccontextmanager
async def beside(context: WorkerContext, queues: Sequence[str]) -> AsyncIterator[None]:
    """The keepers of the backends that this process serves. What they keep goes on when they leave."""
    serving = [supervisor for name, supervisor in supervisors(context).items() if backend_queue(name) in queues]
    if serving:
        await context.cloud_database.run(create_tables)
    store = SqlSystems(context.database)
    tasks = [
        asyncio.create_task(work)
        for supervisor in serving
        for work in (_keep(supervisor, store), _look(supervisor, store))
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep(supervisor: Supervisor, store: SqlSystems) -> None:
    """For as long as we live: a keeper that breaks down is told about and begins again."""

    async def report(facts: Sequence[ServiceFacts]) -> None:
        await store.observe(facts, WHEN_WRITTEN)

    while True:
        try:
            await supervisor.run(report)
        except Exception:
            structlog.get_logger("keeper").exception("the keeper of %s broke down; it begins again", supervisor.name)
            await asyncio.sleep(1)


async def _look(supervisor: Supervisor, store: SqlSystems) -> None:
    while True:
        await asyncio.sleep(LOOK)
        await supervisor.keeping.wait()
        with suppress(RatchetError):
            if changed := await store.observe(await supervisor.facts(), WHEN_WRITTEN):
                structlog.get_logger("keeper").info("corrected what services are shown as", services=changed)
