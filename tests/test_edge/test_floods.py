"""More messages than Temporal allows one run: links and policies continue as new in time, and histories stay short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from domain.edge import messages as edge_messages
from domain.edge.budgets import HOUR_SECONDS, IGNORED_RECORDED_PER_HOUR, SIGNALS_PER_RUN, IgnoredMessageBudget
from domain.edge.policies import PolicyState
from domain.wire import companion_id
from providers.edge import crm
from tests.patience import PATIENCE, answer_of
from tests.stack import ActionStack, Histories, opened
from tests.test_edge.kit import QUICK, Edge, fault
from workflows.edge import inbox

FEWER = SIGNALS_PER_RUN + 200  # signals that a run may hear here: Temporal's own 10,000 take minutes
MANY = FEWER + 400
SOME = 2 * SIGNALS_PER_RUN + 100
SHORT_OF_SIGNALS = pytest.mark.stores("short_of_signals")


@pytest.fixture(scope="module")
async def on_short_of_signals(
    tmp_path_factory: pytest.TempPathFactory, histories: Histories | None
) -> AsyncIterator[ActionStack]:
    """A stack whose server lets a run hear fewer signals."""
    fewer = f"history.maximumSignalsPerExecution={FEWER}"
    async with opened(tmp_path_factory.mktemp("short"), histories, tuning=[fewer]) as found:
        yield found


async def flooded(edge: Edge, workflow_id: str, signal: str, messages: list[Any]) -> None:
    """Sends these signals as quickly as Temporal takes them."""
    handle, gate = edge.client.get_workflow_handle(workflow_id), asyncio.Semaphore(40)

    async def send(message: Any) -> None:
        async with gate:
            while True:
                try:
                    return await handle.signal(signal, message)
                except RPCError as error:
                    if error.status not in (RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.INVALID_ARGUMENT):
                        raise
                    await asyncio.sleep(0.1)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(send, messages))


@SHORT_OF_SIGNALS
async def test_a_link_outlives_a_flood_and_serves_on(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crm, "RESUME_TIMEOUT", PATIENCE)  # a busy link opens the next session late
    path = await edge.up()
    current, cluster = await edge.notify_id(), edge.at("berlin", "c1")
    junk: list[Any] = ["junk", {"state": "Ready", "notify_id": 0}, {"no": "state"}]
    await flooded(
        edge,
        companion_id(path, edge_messages.LINK_ROLE),
        edge_messages.CRM_RESPONSE,
        [junk[n % 3] for n in range(MANY)],
    )
    assert (await edge.user.do(cluster, "create", spec={})).status == "Ready"
    await edge.connect("berlin", {"notify_id": current + 1_000})
    async with asyncio.timeout(PATIENCE):
        while await edge.notify_id() <= current:
            await asyncio.sleep(0.1)
    assert len(await edge.ignored(path)) < IGNORED_RECORDED_PER_HOUR + 50  # and what each run says of the rest


async def deafened(edge: Edge, workflow_id: str) -> None:
    """Signals, until Temporal says that this run may hear no more."""
    handle, full = edge.client.get_workflow_handle(workflow_id), asyncio.Event()

    async def send() -> None:
        while not full.is_set():
            try:
                await handle.signal(edge_messages.CRM_RESPONSE, "junk")
            except RPCError as error:
                if edge_messages.SIGNAL_LIMIT_ERROR in error.message:
                    full.set()
                elif error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                    raise
                await asyncio.sleep(0.1)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(send() for _ in range(40)))


@SHORT_OF_SIGNALS
@pytest.mark.parametrize("key", ["", "with a key"])
async def test_an_action_that_may_hear_no_more_signals_hears_its_crm_through_the_link(edge: Edge, key: str) -> None:
    path, cluster, app = edge.at("berlin"), edge.at("berlin", "c1"), edge.at("berlin", "c1", "shop")
    await edge.start_crm()
    token = {"key": edge.token().create_token()} if key else {}
    await edge.user.do(path, "create", spec={"patience": QUICK, **token})
    for each in (cluster, app):
        await edge.user.do(each, "create", spec={})
    edge.set_faults(fault("silent", "delete"))
    ticket = await edge.begun(cluster, "delete", spec={"cascade": True})
    await edge.until(app, "DeleteRequested")
    await deafened(edge, cluster)
    edge.set_faults()
    await edge.stop_crm()
    await edge.start_crm()  # it is heard that it is back, that the app is gone, and that the cluster is
    assert (await edge.end(ticket)).status == "None"
    assert edge.things() == []
    await edge.at_rest()


async def test_an_action_lets_in_by_update_only_what_it_has_not_heard_just_now(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal counts what is let in, and lets a run hear two thousand updates."""
    monkeypatch.setattr(inbox, "REPEAT_ACCEPTED_AFTER", PATIENCE)
    await edge.up()
    cluster, current = edge.at("berlin", "c1"), await edge.notify_id()
    edge.set_faults(fault("silent"))
    ticket = await edge.begun(cluster, "create", spec={})
    handle = edge.client.get_workflow_handle(cluster)

    async def hand_in(signal: str, **message: Any) -> str:
        try:
            await handle.execute_update(edge_messages.HEAR_UPDATE, {"signal": signal, "message": message})
        except WorkflowUpdateFailedError as error:
            return str(error.cause)
        return ""

    creating = {"state": "Creating", "notify_id": current}
    assert await hand_in(edge_messages.CRM_RESPONSE, **creating) == ""
    await edge.until(cluster, "Creating")
    for task in range(3):
        told = await hand_in(edge_messages.CRM_RESPONSE, **creating, progress={"task": task, "of": 3})
        assert f"it was said within the last {PATIENCE} s" in told
    assert "not understood" in await hand_in(edge_messages.CRM_RESPONSE, state=1)
    assert "not understood" in await hand_in(edge_messages.RECONNECTED)
    assert "no action hears 'demand'" in await hand_in(edge_messages.DEMAND_SIGNAL, cpu=100)
    assert await hand_in(edge_messages.CRM_RESPONSE, state="Ready", notify_id=current) == ""
    assert (await edge.end(ticket)).status == "Ready"


async def test_a_policy_outlives_a_flood_and_still_hears(edge: Edge) -> None:
    path = f"org:{edge.user.ns}:policy:follow"
    sites = [{"cloudlet": "berlin", "cluster": "c1"}]
    rule = {"app": "shop", "cloudlets": sites, "interval": 3_600, "deploy_client_count": 5}
    await edge.user.do(path, "create", spec={"auto_provision": rule})
    loop = companion_id(path, edge_messages.LOOP_ROLE)
    first = (await edge.client.get_workflow_handle(loop).describe()).run_id
    await flooded(edge, loop, edge_messages.DEMAND_SIGNAL, ["junk"] * SOME)
    await edge.client.get_workflow_handle(loop).signal(
        edge_messages.DEMAND_SIGNAL, {"cloudlet": "berlin", "clients": 3}
    )
    async with asyncio.timeout(PATIENCE):
        handle = edge.client.get_workflow_handle(loop)
        while not (memory := await answer_of(handle, "memory", PolicyState)).clients:  # what came before is read first
            await asyncio.sleep(0.1)
    assert memory.clients == {"berlin": 3}
    assert (await edge.client.get_workflow_handle(loop).describe()).run_id != first
    assert len(await edge.ignored(path)) < IGNORED_RECORDED_PER_HOUR + 50
    await edge.user.do(path, "delete")


def test_of_a_flood_the_first_are_kept_within_each_hour_and_the_rest_is_counted() -> None:
    budget, kept = IgnoredMessageBudget(), 0
    for n in range(200):
        keep, budget = budget.spend_for_message(1_000_000 + n)
        kept += keep
    assert (kept, budget.more) == (IGNORED_RECORDED_PER_HOUR, 150)
    assert budget.describe_unrecorded().startswith("150 more")
    assert budget.spend_for_message(1_000_000 + HOUR_SECONDS)[0]
