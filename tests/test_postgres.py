"""The whole stack on PostgreSQL: inventory and clouds in one real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from domain.model import Result
from starter.asking import Asking
from tests.user import User, spec
from workers import embedded
from workers.connection import connect
from workers.plugin import plugin
from workers.service import Service
from workers.settings import Settings


@pytest.fixture
async def user(tmp_path: Path, postgres_url: str) -> AsyncIterator[User]:
    """A user of a stack on PostgreSQL, with a Temporal server of its own: queues have one name everywhere."""
    server = await embedded.start(tmp_path)
    client = await connect(tmp_path, plugin(sandbox=True))
    settings = Settings(home=tmp_path, store_url=postgres_url, cloud_url=postgres_url, simulated_latency=0)
    service = Service(client, settings)
    service.prepare()
    async with service.serve():
        yield User(Asking(client), service, "pg")
    await service.close()
    await server.stop()


async def test_an_mci_lives_its_life_on_postgresql(user: User) -> None:
    assert (await user.do(user.mci(), "create", spec=spec(20))).status == "Running:40 (R:40/40)"
    await user.books_agree()
    results = await asyncio.gather(*(user.do(user.vm(f"aws0-{n}"), "suspend") for n in range(1, 21)))
    assert {outcome.result for outcome in results} == {Result.SUCCEEDED}
    assert (await user.see(user.mci())).status == "Partial-Suspended:20 (R:20/40)"
    tickets = await asyncio.gather(*(user.ask(user.mci(), "resume") for _ in range(10)))
    admitted = [ticket for ticket in tickets if ticket.admission.grant]
    assert len(admitted) == 1
    assert (await user.asking.outcome(user.mci(), admitted[0].run)).status == "Running:40 (R:40/40)"
    await user.books_agree()
    assert (await user.do(user.mci(), "delete")).result is Result.SUCCEEDED
    assert {vms[0].state for vms in (await user.books()).values()} == {"terminated"}
