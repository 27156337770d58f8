"""More signals than one workflow task reads, in every family: all are read in order, and what is meant counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import HandleSignalInput, Replayer

import workers.floods
from client.actions import ActionClient
from domain import wire
from domain.edge import messages as edge_wire
from domain.limits import SIGNALS_PER_TASK
from domain.machines import BIN_ROLE
from domain.machines.rules import bin_tenant_of
from domain.mci.messages import CONTINUE, WITHDRAW, HoldDecision
from domain.model import ActionResult
from tests.patience import PATIENCE
from tests.stack import ActionStack, Histories, opened
from tests.test_cli.test_temporal_ui import pause, unpause
from tests.test_edge.kit import Edge, edge_of, fault
from tests.test_leases.tenant import Tenant
from tests.test_machines.site import MachineSite
from tests.test_mci_hold import end, holding
from tests.test_systems.kit import Shop, service, system
from tests.user import User
from workers.families import WORKFLOWS
from workers.floods import pack_flood
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workflows import argumentguard
from workflows.action import MESSAGES_KEPT
from workflows.floods import FLOOD_HEADER
from workflows.waitqueue import MAX_WOKEN, QueueWaiter

LIMIT = 10_000  # signals that Temporal lets one run receive
SHORT, BEYOND = 3 * SIGNALS_PER_TASK, 100  # the same on a server that lets a run hear fewer, and how many more are sent
SOME = SIGNALS_PER_TASK + 100  # two parts, the last one not full
LONG = pytest.mark.timeout(6 * PATIENCE)
FEW = 500  # lines
MOST_EVENTS = 15_000  # of 51,200, at which Temporal terminates a run


class Reads:
    """Counts the signals that each workflow task of a run reads.

    An instance that replays a run reads everything again, so only the newest one of a run counts.
    """

    def __init__(self) -> None:
        self._newest: dict[str, tuple[object, Counter[int]]] = {}

    def count(self, instance: object) -> None:
        info = workflow.info()
        if self._newest.setdefault(info.run_id, (instance, Counter()))[0] is not instance:
            self._newest[info.run_id] = instance, Counter()
        self._newest[info.run_id][1][info.get_current_history_length()] += 1

    def by_task(self, run: str) -> Counter[int]:
        return self._newest[run][1] if run in self._newest else Counter()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    handle, found = argumentguard._GuardedWorkflow.handle_signal, Reads()

    async def count(self: argumentguard._GuardedWorkflow, input: HandleSignalInput) -> None:
        found.count(self)
        await handle(self, input)

    monkeypatch.setattr(argumentguard._GuardedWorkflow, "handle_signal", count)
    return found


async def send_all(client: Client, workflow_id: str, signals: Iterable[tuple[str, Any]]) -> int:
    """Sends them in this order, as quickly as Temporal takes them. Returns how many it refused: the run was full."""
    handle, gate, refused = client.get_workflow_handle(workflow_id), asyncio.Semaphore(40), 0

    async def send(name: str, message: Any) -> None:
        nonlocal refused
        async with gate:
            while True:
                try:
                    return await handle.signal(name, args=[] if message is None else [message])
                except RPCError as error:
                    if edge_wire.SIGNAL_LIMIT_ERROR in error.message:
                        refused += 1
                        return None
                    if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                        raise
                    await asyncio.sleep(0.1)

    async with asyncio.timeout(3 * PATIENCE):  # ten thousand take ten seconds, and minutes on a busy machine
        await asyncio.gather(*(send(*signal) for signal in signals))
    return refused


@asynccontextmanager
async def in_one_task(client: Client, workflow_id: str) -> AsyncIterator[None]:
    """Whatever is sent meanwhile reaches the workflow in one task."""
    run = (await client.get_workflow_handle(workflow_id).describe()).run_id
    await pause(client, workflow_id, run)
    yield
    await unpause(client, workflow_id, run)


async def count_events(client: Client, workflow_id: str, run: str | None = None) -> Counter[int]:
    history = await client.get_workflow_handle(workflow_id, run_id=run).fetch_history()
    return Counter(event.event_type for event in history.events)


async def first_reads(reads: Reads, run: str) -> int:
    """How many signals a run has read, when it has read the one with which it was started."""
    async with asyncio.timeout(PATIENCE):
        while not reads.by_task(run):
            await asyncio.sleep(0.01)
    return reads.by_task(run).total()


async def assert_read_in_parts(reads: Reads, run: str, total: int, more: int = 0) -> None:
    """Each signal was read once, and no task read more than its share. `more`: others that may have come."""
    async with asyncio.timeout(PATIENCE):
        while reads.by_task(run).total() < total:
            await asyncio.sleep(0.05)
    found = reads.by_task(run)
    assert total <= found.total() <= total + more, found
    assert max(found.values()) <= SIGNALS_PER_TASK, found


@pytest.fixture
async def edge(user: User, home: Path, client: Client) -> AsyncIterator[Edge]:
    async with edge_of(user, home, client) as found:
        yield found


@pytest.fixture(scope="module")
def heard(chaos: bool) -> int:
    """Signals that a run may hear: in the long run Temporal's own ten thousand, which take minutes."""
    return LIMIT if chaos else SHORT


@pytest.fixture(scope="module")
async def on_short_of_signals(
    tmp_path_factory: pytest.TempPathFactory, histories: Histories | None, heard: int
) -> AsyncIterator[ActionStack]:
    """A stack whose server lets a run hear fewer signals."""
    fewer = f"history.maximumSignalsPerExecution={heard}"
    async with opened(tmp_path_factory.mktemp("short"), histories, tuning=[fewer]) as found:
        yield found


@LONG
@pytest.mark.stores("short_of_signals")
async def test_a_held_mci_hears_the_right_one_of_as_many_words_as_a_run_may_hear(
    user: User, client: Client, reads: Reads, heard: int
) -> None:
    ticket, path = await holding(user), user.mci()
    junk = [(CONTINUE, ["junk"]), (WITHDRAW, {"no": "such field"}), ("noise", {"n": 1})]
    before, after = heard // 2, heard + BEYOND - heard // 2 - 1
    async with in_one_task(client, path):
        refused = await send_all(client, path, (junk[n % 3] for n in range(before)))
        await send_all(client, path, [(CONTINUE, HoldDecision(requested_by="eve"))])
        late = [(WITHDRAW, HoldDecision(requested_by=f"late {n}")) for n in range(after)]
        refused += await send_all(client, path, late)
    outcome = await end(user, ticket)
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "Running:2 (R:2/2)")
    assert refused == BEYOND  # Temporal told their senders
    await assert_read_in_parts(reads, ticket.run, heard)
    assert (await count_events(client, path, ticket.run)).total() < MOST_EVENTS * heard / LIMIT
    lines = [line.message for line in await user.history(path)]
    assert "continue by eve" in lines
    ignored = [line for line in lines if line.startswith("ignored")]
    assert MESSAGES_KEPT <= len(ignored) < FEW  # a task that is tried again records them again


async def test_of_a_flood_of_valid_words_the_first_counts_and_the_rest_costs_little(
    user: User, client: Client, reads: Reads
) -> None:
    """Each of them would be a look into the inventory, and a line there."""
    ticket, path = await holding(user), user.mci()
    async with in_one_task(client, path):
        await send_all(client, path, [(WITHDRAW, HoldDecision(requested_by="eve"))])
        await send_all(client, path, ((CONTINUE, HoldDecision(requested_by=f"late {n}")) for n in range(SOME)))
    assert (await end(user, ticket)).message.startswith("withdraw by eve")
    await assert_read_in_parts(reads, ticket.run, SOME + 1)
    events = await count_events(client, path, ticket.run)
    assert events[EventType.EVENT_TYPE_MARKER_RECORDED] < 2 * MESSAGES_KEPT + 20


@LONG
@pytest.mark.stores("short_of_signals")
async def test_an_action_hears_its_crm_among_as_many_messages_as_a_run_may_hear(
    edge: Edge, client: Client, reads: Reads, heard: int
) -> None:
    await edge.up(create=1_800, answer=1_800, cap=3_600)  # the flood may take long to read
    cluster, current = edge.at("berlin", "c1"), await edge.notify_id()
    edge.set_faults(fault("silent"))
    ticket = await edge.begun(cluster, "create", spec={})
    await edge.until(cluster, "CreateRequested")
    answer = edge_wire.CRM_RESPONSE
    junk = [(answer, "junk"), (answer, {"state": "Ready", "notify_id": current - 1}), ("noise", None)]
    before, after = heard // 2, heard + BEYOND - heard // 2 - 1
    async with in_one_task(client, cluster):
        refused = await send_all(client, cluster, (junk[n % 3] for n in range(before)))
        current = await edge.notify_id()  # another one if the CRM has come anew
        await send_all(client, cluster, [(answer, {"state": "Ready", "notify_id": current, "runtime": {"a": "b"}})])
        refused += await send_all(client, cluster, (junk[n % 3] for n in range(after)))
    assert (await edge.end(ticket)).status == "Ready"
    assert refused == BEYOND
    await assert_read_in_parts(reads, ticket.run, heard)
    assert (await count_events(client, cluster, ticket.run)).total() < MOST_EVENTS * heard / LIMIT
    assert 0 < len(await edge.ignored(cluster)) < FEW
    edge.set_faults()
    await edge.at_rest()


async def test_reconnections_that_are_claimed_in_a_flood_are_confirmed_in_bulk(
    edge: Edge, client: Client, reads: Reads
) -> None:
    path, cluster = edge.at("berlin"), edge.at("berlin", "c1")
    await edge.start_crm()
    await edge.user.do(path, "create", spec={"key": edge.token().create_token()})
    edge.set_faults(fault("silent"))
    ticket = await edge.begun(cluster, "create", spec={})
    await edge.until(cluster, "CreateRequested")
    true = (await edge.see(path)).info["crm"]
    claims = [{"address": {**true, "cloudlet": path, "notify_id": n}} for n in range(SOME)]
    async with in_one_task(client, cluster):
        await send_all(client, cluster, ((edge_wire.RECONNECTED, claim) for claim in claims))
    edge.set_faults()
    await edge.stop_crm()
    await edge.start_crm()  # this one is true
    assert (await edge.end(ticket)).status == "Ready"
    assert (await count_events(client, cluster, ticket.run)).total() < MOST_EVENTS / 10 + SOME


async def test_a_link_reads_a_flood_in_parts_and_continues_as_new(edge: Edge, client: Client, reads: Reads) -> None:
    path, current = await edge.up(), await edge.notify_id()
    link = wire.companion_id(path, edge_wire.LINK_ROLE)
    run = (await client.get_workflow_handle(link).describe()).run_id
    before = reads.by_task(run).total()
    async with in_one_task(client, link):
        await send_all(client, link, ((edge_wire.CRM_RESPONSE, {"no": n}) for n in range(SOME)))
        await send_all(client, link, [(edge_wire.CRM_CONNECT, {"notify_id": current + 1_000})])
        await send_all(client, link, ((edge_wire.CRM_RESPONSE, ["junk"]) for _ in range(SOME)))
    async with asyncio.timeout(PATIENCE):
        while await edge.notify_id() <= current:
            await asyncio.sleep(0.1)
        while (await client.get_workflow_handle(link).describe()).run_id == run:  # until it has continued as new
            await asyncio.sleep(0.1)
    await assert_read_in_parts(reads, run, before + 2 * SOME + 1)


async def test_a_clock_reads_a_flood_in_parts_and_still_rings(
    asking: ActionClient, stack: WorkerService, client: Client, reads: Reads, ns: str
) -> None:
    tenant = Tenant(asking, stack, f"{ns}pool")
    await tenant.add_hosts("h1")
    await tenant.create()
    clock, run = tenant.clock(), (await tenant.clock().describe()).run_id
    before = await first_reads(reads, run)
    noise = [("noise", None), (wire.LOOK_AGAIN, None)]
    async with in_one_task(client, clock.id):
        await send_all(client, clock.id, (noise[n % 2] for n in range(2 * SOME)))
    await assert_read_in_parts(reads, run, before + SOME)
    await tenant.create("l2", start="now", end="+30m")
    await tenant.until(lambda lease: lease.status == "ACTIVE", "l2")
    await tenant.stop_clock()


async def test_the_clock_of_a_bin_reads_a_flood_in_parts(
    asking: ActionClient, stack: WorkerService, client: Client, reads: Reads, ns: str
) -> None:
    site = MachineSite(asking, stack, f"{ns}x")
    await site.with_machine()
    await site.to(site.machine(), "delete")
    clock = wire.companion_id(bin_tenant_of(site.machine()), BIN_ROLE)
    run = (await client.get_workflow_handle(clock).describe()).run_id
    before = await first_reads(reads, run)
    async with in_one_task(client, clock):
        await send_all(client, clock, ((wire.LOOK_AGAIN, None) for _ in range(SOME)))
    await assert_read_in_parts(reads, run, before + SOME)
    assert await site.status(site.machine()) == "DELETED"


async def test_an_action_that_waits_in_a_queue_reads_a_flood_in_parts(
    asking: ActionClient, stack: WorkerService, client: Client, reads: Reads, ns: str
) -> None:
    site = MachineSite(asking, stack, f"{ns}x")
    await site.with_machine(nodes=2)
    db = site.machine()
    await site.hang(db, "migrate", 600)
    await site.admitted(db, "migrate", node=f"{site.name}-2")
    await site.hanging(db)
    stop = await site.admitted(db, "stop")
    async with in_one_task(client, db):
        await send_all(client, db, ((wire.PASSED_SIGNAL, {"workflow": "x"}) for _ in range(SOME)))
    await assert_read_in_parts(reads, stop.run, SOME, more=2)  # the migration's own, if it has ended meanwhile
    await site.heal_faults()
    assert (await site.outcome(stop)).status == "HALTED"


async def test_a_deploy_that_waits_for_its_services_reads_a_flood_in_parts(
    asking: ActionClient, stack: WorkerService, client: Client, reads: Reads, ns: str
) -> None:
    shop = await Shop(asking, stack, f"system:{ns}").create()
    shop.hold("/web")
    ticket = await shop.admitted("/", "deploy", {"definition": system(service("web"))})
    await shop.until_record("d1", "in progress")
    noise: list[tuple[str, Any]] = [("noise", None), (wire.PASSED_SIGNAL, {"workflow": "x"})]
    async with in_one_task(client, shop.path):
        await send_all(client, shop.path, (noise[n % 2] for n in range(SOME)))
    await assert_read_in_parts(reads, ticket.run, SOME)  # an action takes any name, and records it as ignored
    shop.let_go()
    assert (await asking.wait_for_outcome(ticket.path, ticket.run)).status == "stable"
    assert (await shop.do("/", "delete")).status == "None"


def test_whoever_was_woken_a_hundred_times_looks_by_its_own_timer() -> None:
    """Each look is an event, or three: ten thousand of them would end the run by the length of its history."""
    place = QueueWaiter()
    for _ in range(LIMIT):
        place.wake()
    assert place.passed == MAX_WOKEN


async def test_a_flood_before_the_first_task_of_a_workflow_that_was_started_wrongly_holds_up_nobody(
    edge: Edge, client: Client
) -> None:
    path = edge.at("nowhere")
    link: dict[str, Any] = {"id": wire.companion_id(path, edge_wire.LINK_ROLE), "task_queue": wire.ACTIONS_QUEUE}
    wrong = [{"cloudlet": path}, "one too many"]
    day = timedelta(days=1)
    run = await client.start_workflow(edge_wire.CLOUDLET_LINK, args=wrong, start_delay=day, **link)
    await send_all(client, link["id"], ((edge_wire.CRM_RESPONSE, {"no": n}) for n in range(SOME)))
    await client.start_workflow(  # wakes it
        edge_wire.CLOUDLET_LINK,
        args=wrong,
        start_signal=edge_wire.CRM_RESPONSE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        **link,
    )
    with pytest.raises(WorkflowFailureError):
        async with asyncio.timeout(PATIENCE):
            await run.result()


async def test_a_flood_that_was_not_packed_when_it_came_replays(
    edge: Edge, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay may find in one task, and so pack, what came in several: it pauses after the same signal."""
    path = await edge.up()
    link = client.get_workflow_handle(wire.companion_id(path, edge_wire.LINK_ROLE))
    with monkeypatch.context() as unpacked:
        unpacked.setattr(workers.floods, "SIGNALS_PER_TASK", SOME)
        async with in_one_task(client, link.id):
            await send_all(client, link.id, ((edge_wire.CRM_RESPONSE, ["junk"]) for _ in range(SIGNALS_PER_TASK + 50)))
        async with asyncio.timeout(PATIENCE):
            while not await edge.ignored(path):
                await asyncio.sleep(0.05)
        history = await link.fetch_history()
    plugins = [temporal_plugin(sandbox=True)]
    replayer = Replayer(workflows=WORKFLOWS, plugins=plugins, namespace=client.namespace)
    assert (await replayer.replay_workflow(history)).replay_failure is None


def test_a_flood_is_packed_in_its_order_and_nobody_else_can_pack() -> None:
    def activation(number: int) -> WorkflowActivation:
        act = WorkflowActivation()
        act.jobs.add().initialize_workflow.workflow_id = "w"
        for n in range(number):
            act.jobs.add().signal_workflow.signal_name = str(n)
        act.jobs[1].signal_workflow.headers[FLOOD_HEADER].CopyFrom(Payload(data=b"forged"))
        return act

    few, flood = activation(SIGNALS_PER_TASK), activation(SIGNALS_PER_TASK + 1)
    for act in (few, flood):
        pack_flood(act, ["name", None])
    assert len(few.jobs) == 1 + SIGNALS_PER_TASK
    assert not few.jobs[1].signal_workflow.headers
    assert [job.WhichOneof("variant") for job in flood.jobs] == ["initialize_workflow", "signal_workflow"]
    packed = flood.jobs[1].signal_workflow
    assert packed.signal_name == "name"
    signals = [job.signal_workflow for job in WorkflowActivation.FromString(packed.headers[FLOOD_HEADER].data).jobs]
    assert [signal.signal_name for signal in signals] == [str(n) for n in range(SIGNALS_PER_TASK + 1)]
    assert not any(signal.headers for signal in signals)
