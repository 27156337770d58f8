"""What a worker needs for systems: workflows, activities on a queue for each backend, and their keepers beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from activities.systems import BackendBooks, BackendWork, SystemWrites
from activities.verifying import Audit
from domain.errors import RatchetError
from domain.model import WHEN_WRITTEN
from domain.systems.backend import backend_queue
from domain.systems.rules import Facts
from domain.wire import ACTIONS_QUEUE
from providers.systems.keeper import Keeper
from providers.systems.ledger import Ledger, create_tables
from providers.systems.process import ProcessRunner
from providers.systems.runner import Runner
from providers.systems.simulated import SimulatedRunner
from store.systems import SqlSystems
from workers.parts import Parts
from workflows.systems import CreateSystem, DeleteSystem, DeployPart, TearDownSystem

WORKFLOWS: list[type] = [CreateSystem, DeployPart, TearDownSystem, DeleteSystem]
BACKENDS = ("simulated", "process")
QUEUES = tuple(map(backend_queue, BACKENDS))
LOOK = 10.0  # seconds between looks at everything, in case that a change was told when nobody could write it


def activities(parts: Parts) -> dict[str, list[Callable[..., Any]]]:
    """Queue by queue."""
    store = SqlSystems(parts.database)
    writes = SystemWrites(store)
    books = BackendBooks(keepers(parts), store)
    found: dict[str, list[Callable[..., Any]]] = {
        ACTIONS_QUEUE: [writes.accept_deploy, writes.accept_removal, writes.revert_deploy, books.read_services]
    }
    for name, keeper in keepers(parts).items():
        work = BackendWork(keeper, store, parts.inventory, parts.fence)
        found[backend_queue(name)] = [
            work.prepare_system,
            work.roll_out,
            work.assess_parts,
            work.settle_parts,
            work.remove_parts,
            work.settle_removal,
        ]
    return found


def audits(parts: Parts) -> list[Audit]:
    """Services against the backends' books."""
    return [BackendBooks(keepers(parts), SqlSystems(parts.database)).audit]


def keepers(parts: Parts) -> dict[str, Keeper]:
    """One for each backend, the same for everybody in this process."""
    if "systems" not in parts.own:
        home = parts.settings.home
        runners: tuple[Runner, ...] = (
            SimulatedRunner(parts.settings.simulated_latency),
            ProcessRunner(home / "services"),
        )
        parts.own["systems"] = {
            runner.name: Keeper(runner, Ledger(runner.name, parts.cloud_database), home / f"keeper-{runner.name}.lock")
            for runner in runners
        }
    made: dict[str, Keeper] = parts.own["systems"]
    return made


@asynccontextmanager
async def beside(parts: Parts, queues: Sequence[str]) -> AsyncIterator[None]:
    """The keepers of the backends that this process serves. What they keep goes on when they leave."""
    serving = [keeper for name, keeper in keepers(parts).items() if backend_queue(name) in queues]
    if serving:
        await parts.cloud_database.run(create_tables)
    store = SqlSystems(parts.database)
    tasks = [asyncio.create_task(work) for keeper in serving for work in (_keep(keeper, store), _look(keeper, store))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep(keeper: Keeper, store: SqlSystems) -> None:
    """For as long as we live: a keeper that breaks down is told about and begins again."""

    async def report(facts: Sequence[Facts]) -> None:
        await store.observe(facts, WHEN_WRITTEN)

    while True:
        try:
            await keeper.run(report)
        except Exception:
            structlog.get_logger("keeper").exception("the keeper of %s broke down; it begins again", keeper.name)
            await asyncio.sleep(1)


async def _look(keeper: Keeper, store: SqlSystems) -> None:
    while True:
        await asyncio.sleep(LOOK)
        await keeper.keeping.wait()
        with suppress(RatchetError):
            if changed := await store.observe(await keeper.facts(), WHEN_WRITTEN):
                structlog.get_logger("keeper").info("corrected what services are shown as", services=changed)
