"""The database stops under a running stack: actions wait, none fails, and all end soon after its return."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from client.actions import ActionClient
from client.connection import connect_temporal
from domain.errors import StoreUnavailable
from domain.faults import Fault, FaultKind
from domain.model import ActionResult, Outcome
from tests.patience import PATIENCE
from tests.test_platform.postgres import Postgres
from tests.user import User, spec
from workers import embedded
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings

AWAY_SECONDS = 4
RETRIED_SECONDS = 10  # after its return: the longest pause between two tries
TRIES = 3  # once the machine may have had more to do just then than before and after
BUSIER = 5  # times as long as an undisturbed creation: two actions at once, and their dead connections are dropped


@pytest.fixture
def postgres(tmp_path: Path) -> Postgres:
    return Postgres(tmp_path / "postgres")


@pytest.fixture
async def user(tmp_path: Path, postgres: Postgres) -> AsyncIterator[User]:
    """A user of a stack whose inventory is in PostgreSQL; the clouds, as in life, are elsewhere."""
    server = await embedded.start_server(tmp_path)
    client = await connect_temporal(tmp_path, temporal_plugin())
    service = WorkerService(client, WorkerSettings(home=tmp_path, store_url=postgres.url, simulated_latency=0))
    service.prepare_databases()
    asking = ActionClient(client)
    asking.admission_seconds = PATIENCE
    async with service.serve_queues():
        yield User(asking, service, "pg")
    await service.close()
    await server.stop_server()
    postgres.close()


async def hang(user: User, vm: str, verb: str, until: asyncio.Event) -> asyncio.Event:
    """The next such call hangs until the event. Returns another, which is set when it does."""
    aws, hanging = user.service.simulated["aws"], asyncio.Event()

    async def wait(*_call: object) -> None:
        hanging.set()
        await until.wait()

    setattr(aws._provider, "simulate_delays", wait)  # noqa: B010  a method, as far as mypy knows
    await aws.add_fault(Fault(kind=FaultKind.HANG, vm=vm, verb=verb, times=1))
    return hanging


class Turns:
    """Seconds in which this process, with the worker in it, had its turn: none while the machine stands still."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @classmethod
    @asynccontextmanager
    async def counted(cls) -> AsyncIterator[Turns]:
        turns = cls()
        counting = asyncio.create_task(turns._count())
        yield turns
        counting.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.seconds += 0.05


async def created(user: User, name: str) -> float:
    """How long a creation takes on this machine, just now."""
    async with Turns.counted() as turns:
        await user.do(user.mci(name), "create", spec=spec(3))
    return turns.seconds


async def outage(user: User, postgres: Postgres, old: str, new: str) -> tuple[float, float]:
    """Two actions through an outage. Returns after how long they ended, and after how long they have to."""
    undisturbed = await created(user, old)
    is_away = asyncio.Event()
    hanging = await hang(user, "aws0-3", "suspend", until=is_away)
    landing = await user.admitted(user.mci(old), "suspend")  # the store goes while its VMs land
    await asyncio.wait_for(hanging.wait(), PATIENCE)
    postgres.crash()
    is_away.set()
    with pytest.raises(StoreUnavailable, match="the store did not answer"):
        await user.service.inventory.read_object(user.mci(old))
    asked = asyncio.create_task(user.do(user.mci(new), "create", spec=spec(3)))  # it is away when this one begins
    await asyncio.sleep(AWAY_SECONDS)
    running = await user.asking.newest_run(landing.path)
    assert running
    assert running.status is not None
    assert (running.status.name, asked.done()) == ("RUNNING", False)
    await asyncio.to_thread(postgres.start)
    async with Turns.counted() as turns:
        outcomes: tuple[Outcome, Outcome] = await asyncio.wait_for(
            asyncio.gather(user.asking.wait_for_outcome(landing.path, landing.run), asked), PATIENCE
        )
    assert [(outcome.result, outcome.failed) for outcome in outcomes] == [(ActionResult.SUCCEEDED, 0)] * 2
    for name in (old, new):
        await user.books_agree(name)
    undisturbed = max(undisturbed, await created(user, f"{new}er"))
    return turns.seconds, RETRIED_SECONDS + BUSIER * undisturbed


async def test_actions_outlive_an_outage_of_the_store_and_end_after_it(user: User, postgres: Postgres) -> None:
    for number in range(TRIES):
        took, allowed = await outage(user, postgres, f"old{number}", f"new{number}")
        if took < allowed:
            break
    assert took < allowed, "each time"
    assert {vm.effects for vms in (await user.books()).values() for vm in vms} == {1, 2}, "nothing was done twice"
