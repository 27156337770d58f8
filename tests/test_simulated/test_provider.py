"""What simulated providers share: latency, the fault script, a transaction for each call, tokens and epochs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from domain.errors import Rejected, StoreUnavailable, Superseded, Throttled, Unavailable, UnknownOutcome
from domain.faults import Fault, FaultKind
from providers.leases.hosts import SimulatedHosts
from providers.machines.state import HYPERVISOR_LEDGER, HypervisorObject
from providers.simulated.faults import FaultScriptStore
from providers.simulated.ledger import LedgerOrder
from providers.simulated.provider import SimulatedProvider
from store.engine import Database

NAME, PATH = "shelf", "account:a:disk:d1"


def _switch(connection: sa.Connection, state: str, token: str, epoch: int = 1) -> HypervisorObject:
    order = LedgerOrder(PATH, "disk", "switch", token, epoch)
    return HYPERVISOR_LEDGER.carry_out_order_once(connection, order, lambda old: replace(old, state=state))


async def _call(provider: SimulatedProvider, state: str, token: str, epoch: int = 1) -> HypervisorObject:
    return await provider.perform_call("switch", "r1", [PATH], partial(_switch, state=state, token=token, epoch=epoch))


async def _now(provider: SimulatedProvider) -> HypervisorObject:
    return await provider.run_transaction(partial(HYPERVISOR_LEDGER.find_object, path=PATH))


@pytest.fixture
def shelf(database: Database) -> SimulatedProvider:
    return SimulatedProvider(NAME, database)


async def test_a_token_has_one_effect_however_often_its_order_comes(shelf: SimulatedProvider) -> None:
    await _call(shelf, "on", "t1")
    await _call(shelf, "off", "t2")
    assert (await _call(shelf, "on", "t1")).state == "off"
    assert ((await _now(shelf)).state, (await _now(shelf)).effects) == ("off", 2)
    assert await shelf.run_transaction(partial(HYPERVISOR_LEDGER.list_carried_out_verbs, path=PATH)) == [
        "switch",
        "switch",
    ]


async def test_an_order_without_effect_still_raises_the_epoch(shelf: SimulatedProvider) -> None:
    await _call(shelf, "on", "t1", 5)
    await _call(shelf, "on", "t2", 7)
    with pytest.raises(Superseded, match=r"the order of action 6 for .* comes too late: action 7 has ordered since"):
        await _call(shelf, "off", "t3", 6)
    assert ((await _now(shelf)).state, (await _now(shelf)).effects) == ("on", 1)


@pytest.mark.parametrize(
    ("kind", "error", "state"),
    [
        (FaultKind.FAIL, Rejected, "absent"),
        (FaultKind.THROTTLE, Throttled, "absent"),
        (FaultKind.UNAVAILABLE, Unavailable, "absent"),
        (FaultKind.LOSE_ANSWER, UnknownOutcome, "on"),
    ],
)
async def test_a_fault_strikes_as_often_as_was_asked(
    shelf: SimulatedProvider, database: Database, kind: FaultKind, error: type[Exception], state: str
) -> None:
    await FaultScriptStore(database).replace_rules([Fault(kind=kind, csp=NAME, verb="switch", times=1)])
    with pytest.raises(error):
        await _call(shelf, "on", "t1")
    assert (await _now(shelf)).state == state
    assert (await _call(shelf, "on", "t1")).state == "on"
    assert (await _now(shelf)).effects == 1


async def test_a_lost_refusal_is_an_unknown_outcome(shelf: SimulatedProvider, database: Database) -> None:
    await _call(shelf, "on", "t1", 5)
    await FaultScriptStore(database).replace_rules([Fault(kind=FaultKind.LOSE_ANSWER, csp=NAME, times=1)])
    with pytest.raises(UnknownOutcome):
        await _call(shelf, "off", "t2", 4)
    assert (await _now(shelf)).state == "on"


async def test_a_delay_comes_before_the_rules_after_it(shelf: SimulatedProvider, database: Database) -> None:
    slow = Fault(kind=FaultKind.SLOW, csp=NAME, seconds=0.01, times=1)
    await FaultScriptStore(database).replace_rules([slow, Fault(kind=FaultKind.FAIL, csp=NAME, times=1)])
    with pytest.raises(Rejected):
        await _call(shelf, "on", "t1")
    assert await FaultScriptStore(database).list_rules() == []


async def test_a_new_fault_is_met_by_a_provider_that_had_none(shelf: SimulatedProvider, database: Database) -> None:
    await _call(shelf, "on", "t1")
    await FaultScriptStore(database).append_rule(Fault(kind=FaultKind.FAIL, csp=NAME, times=1))
    with pytest.raises(Rejected):
        await _call(shelf, "off", "t2")


async def test_a_database_that_fails_is_a_provider_that_is_not_there() -> None:
    class Away:
        async def run_transaction(self, work: Any) -> Any:
            raise StoreUnavailable("gone")

    with pytest.raises(Unavailable, match="the database of the simulated hosts failed: gone"):
        await SimulatedHosts(Away()).list_existing_objects("", ("", ""))
