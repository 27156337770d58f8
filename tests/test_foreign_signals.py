"""Signals with names that nobody handles: they wake nobody, but Temporal counts them, and makes a run deaf at 10,000.

Every companion continues as new before that, at the length of history at which it would by itself, or when the server
proposes it. The signals come one by one, as many tasks: in one task they are a flood, which `test_floods.py` has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import FunctionType, SimpleNamespace

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.client import Client

from client.actions import ActionClient
from domain import wire
from domain.edge import messages as edge_wire
from domain.machines import BIN_ROLE
from tests.patience import PATIENCE
from tests.stack import ActionStack, Histories, opened
from tests.test_edge.kit import edge_of
from tests.test_floods import LIMIT, LONG, send_all
from tests.test_leases.tenant import Tenant
from tests.test_machines.site import MachineSite
from tests.user import User
from workers.floods import pack_flood
from workers.service import WorkerService
from workflows.calls import LONG_HISTORY_EVENTS, should_continue_as_new

pytestmark = LONG
BATCH = 100
PROPOSED = pytest.mark.stores("proposing")


@pytest.fixture(scope="module")
async def on_proposing(
    tmp_path_factory: pytest.TempPathFactory, histories: Histories | None
) -> AsyncIterator[ActionStack]:
    """A stack whose server proposes soon to continue as new: four thousand events take half a minute of CPU."""
    home = tmp_path_factory.mktemp("proposing")
    async with opened(home, histories, tuning=["limit.historyCount.suggestContinueAsNew=400"]) as found:
        yield found


async def hears_noise(client: Client, companion: str) -> None:
    """Signals that nobody handles come, until the companion continues as new."""
    handle, heard = client.get_workflow_handle(companion), 0
    run = (await handle.describe()).run_id
    while (await handle.describe()).run_id == run and heard < LIMIT // 2:
        heard += BATCH
        await send_all(client, companion, (("noise", None) for _ in range(BATCH)))
    async with asyncio.timeout(PATIENCE):
        while (await handle.describe()).run_id == run:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("length", "proposed", "due"),
    [(LONG_HISTORY_EVENTS, False, False), (LONG_HISTORY_EVENTS + 1, False, True), (1, True, True)],
)
def test_a_history_is_too_long_by_itself_before_a_run_is_deaf(length: int, proposed: bool, due: bool) -> None:
    """A signal that nobody handles is three or four events: an event, and a task."""
    assert LONG_HISTORY_EVENTS < LIMIT
    info = SimpleNamespace(get_current_history_length=lambda: length, is_continue_as_new_suggested=lambda: proposed)
    known = {"workflow": SimpleNamespace(info=lambda: info), "LONG_HISTORY_EVENTS": LONG_HISTORY_EVENTS}
    assert FunctionType(should_continue_as_new.__code__, known)() is due


@PROPOSED
async def test_a_clock_that_nobody_means_continues_as_new(
    asking: ActionClient, stack: WorkerService, client: Client, ns: str
) -> None:
    tenant = Tenant(asking, stack, f"{ns}pool")
    await tenant.add_hosts("h1")
    await tenant.create()
    await hears_noise(client, tenant.clock().id)
    await tenant.stop_clock()


@PROPOSED
async def test_a_bin_that_nobody_means_continues_as_new(
    asking: ActionClient, stack: WorkerService, client: Client, ns: str
) -> None:
    site = await MachineSite(asking, stack, f"{ns}x").with_account()
    for name in ("kept", "gone"):
        await site.seed(site.disk(name), "create")
    await site.to(site.disk("kept"), "delete")
    await hears_noise(client, wire.companion_id(site.account, BIN_ROLE))
    await site.to(site.disk("gone"), "delete", retention_days=0)
    await site.until(site.disk("gone"), "DESTROYED")


@PROPOSED
async def test_a_link_that_nobody_means_continues_as_new(user: User, home: Path, client: Client) -> None:
    async with edge_of(user, home, client) as edge:
        path = await edge.up()
        await hears_noise(client, wire.companion_id(path, edge_wire.LINK_ROLE))
        assert (await edge.user.do(edge.at("berlin", "c1"), "create", spec={})).status == "Ready"


@PROPOSED
async def test_a_policy_that_nobody_means_continues_as_new(user: User, home: Path, client: Client) -> None:
    async with edge_of(user, home, client):
        path = f"org:{user.ns}:policy:follow"
        sites = [{"cloudlet": "berlin", "cluster": "c1"}]
        rule = {"app": "shop", "cloudlets": sites, "interval": 3_600, "deploy_client_count": 5}
        await user.do(path, "create", spec={"auto_provision": rule})
        await hears_noise(client, wire.companion_id(path, edge_wire.LOOP_ROLE))
        await user.do(path, "delete")


def test_a_signal_that_nobody_handles_is_packed_though_it_is_alone() -> None:
    def packed(name: str, *handled: str | None) -> bool:
        act = WorkflowActivation()
        act.jobs.add().signal_workflow.signal_name = name
        pack_flood(act, handled)
        return bool(act.jobs[0].signal_workflow.headers)

    assert packed("noise", "look")
    assert not packed("look", "look")
    assert not packed("noise", "look", None)  # this handler takes every name
