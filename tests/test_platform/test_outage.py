"""The database stops under a running stack: actions wait, none fails, and all end soon after its return."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

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


async def test_actions_outlive_an_outage_of_the_store_and_end_after_it(user: User, postgres: Postgres) -> None:
    began = monotonic()
    await user.do(user.mci("old"), "create", spec=spec(3))
    undisturbed = monotonic() - began  # on this machine, just now
    is_away = asyncio.Event()
    hanging = await hang(user, "aws0-3", "suspend", until=is_away)
    landing = await user.admitted(user.mci("old"), "suspend")  # the store goes while its VMs land
    await asyncio.wait_for(hanging.wait(), PATIENCE)
    postgres.crash()
    is_away.set()
    with pytest.raises(StoreUnavailable, match="the store did not answer"):
        await user.service.inventory.read_object(user.mci("old"))
    asked = asyncio.create_task(user.do(user.mci("new"), "create", spec=spec(3)))  # it is away when this one begins
    await asyncio.sleep(AWAY_SECONDS)
    running = await user.asking.newest_run(landing.path)
    assert running
    assert running.status is not None
    assert (running.status.name, asked.done()) == ("RUNNING", False)
    await asyncio.to_thread(postgres.start)
    back = monotonic()
    outcomes: tuple[Outcome, Outcome] = await asyncio.wait_for(
        asyncio.gather(user.asking.wait_for_outcome(landing.path, landing.run), asked), PATIENCE
    )
    assert [(outcome.result, outcome.failed) for outcome in outcomes] == [(ActionResult.SUCCEEDED, 0)] * 2
    assert monotonic() - back < RETRIED_SECONDS + BUSIER * undisturbed
    await user.books_agree("old")
    await user.books_agree("new")
    assert {vm.effects for vms in (await user.books()).values() for vm in vms} == {1, 2}, "nothing was done twice"
