"""A supervisor of containers by itself, without a worker. It imports little, so that a process starts quickly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from domain.services.ports import ServiceOrder
from providers.services.confinement import ProcessRules
from providers.services.container import ContainerRules, ContainerRunner
from providers.services.ledger import BackendLedger, SupervisedInstance, create_tables
from providers.services.runner import InstanceRunner
from providers.services.supervisor import Supervisor
from store.engine import Database

ANY_IMAGE = ContainerRules(["/"])


def make_runner(folder: Path, rules: ContainerRules = ANY_IMAGE) -> ContainerRunner:
    return ContainerRunner(folder / "services", ProcessRules(secrets=folder / "secrets"), rules)


@asynccontextmanager
async def keeping(folder: Path, rules: ContainerRules = ANY_IMAGE) -> AsyncIterator[Supervisor]:
    """A supervisor with its data in a folder. Leaving the block is, for its containers, the end of a worker."""
    database = Database(f"sqlite:///{folder / 'books.db'}")
    database.run_transaction_blocking(create_tables)
    supervisor = Supervisor(make_runner(folder, rules), BackendLedger("container", database), folder / "lock")
    async with supervising(supervisor, database):
        yield supervisor


@asynccontextmanager
async def supervising(supervisor: Supervisor, database: Database) -> AsyncIterator[None]:
    """A supervisor at work, until the block ends; then its database is closed."""
    task = asyncio.create_task(supervisor.run(lambda _facts, _gone: asyncio.sleep(0)))
    try:
        await supervisor.is_supervising.wait()
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        database.close()


async def probe(runner: InstanceRunner, unit: SupervisedInstance, well: bool) -> str:
    """Why an instance that was started is not healthy; of one that is to get well, as soon as it has."""
    await runner.start_instance(unit)
    try:
        while (why := await runner.probe_instance(unit)) and well:
            await asyncio.sleep(0.05)
        return why
    finally:
        await runner.stop_instance(unit)


async def until(supervisor: Supervisor, wanted: int, generation: int) -> None:
    listener = supervisor.subscribe_to_changes("system:s")
    while True:
        facts = await supervisor.describe_services("system:s")
        if len(facts) == wanted and all(fact.is_rolled_out(generation) for fact in facts):
            return listener.close()
        await listener.wait_for_change()


async def want(supervisor: Supervisor, generation: int, definition: dict[str, Any]) -> list[SupervisedInstance]:
    """Order a service and wait until it is as it should be."""
    await supervisor.apply_orders([ServiceOrder("system:s:job", generation, definition)])
    await until(supervisor, 1, generation)
    return await supervisor.ledger.list_instances()


async def forget(supervisor: Supervisor) -> None:
    await supervisor.remove_services("system:s", 1_000)
    await until(supervisor, 0, 0)
