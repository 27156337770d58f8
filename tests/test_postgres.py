"""The whole stack on PostgreSQL: inventory and clouds in one real server."""

from __future__ import annotations

import asyncio

import pytest

from domain.model import ActionResult
from tests.user import User, spec

pytestmark = pytest.mark.stores("postgres")


async def test_a_module_that_names_a_database_runs_its_actions_there(user: User) -> None:
    assert user.service.settings.store_database_url().startswith("postgresql")


async def test_an_mci_lives_its_life_on_postgresql(user: User) -> None:
    assert (await user.do(user.mci(), "create", spec=spec(20))).status == "Running:40 (R:40/40)"
    await user.books_agree()
    results = await asyncio.gather(*(user.do(user.vm(f"aws0-{n}"), "suspend") for n in range(1, 21)))
    assert {outcome.result for outcome in results} == {ActionResult.SUCCEEDED}
    assert (await user.see(user.mci())).status == "Partial-Suspended:20 (R:20/40)"
    tickets = await asyncio.gather(*(user.ask(user.mci(), "resume") for _ in range(10)))
    admitted = [ticket for ticket in tickets if ticket.admission.grant]
    assert len(admitted) == 1
    assert (await user.asking.wait_for_outcome(user.mci(), admitted[0].run)).status == "Running:40 (R:40/40)"
    await user.books_agree()
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert {vms[0].state for vms in (await user.books()).values()} == {"terminated"}
