"""With keys on: plaintext and payloads of other workflows are refused by workers and clients, and nothing changes."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from google.protobuf.json_format import Parse
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from client.actions import ActionClient, Ticket
from client.codec import CodecServer, serve_in_threads
from client.connect_errors import translate_errors
from client.encryption import EncryptionCodec, PayloadSeal, RefusedPayload, load_keys
from client.errors import Unreachable
from client.payloads import data_converter
from client.storeregistry import read_registered_store, register_store
from domain import wire
from domain.edge.messages import DEMAND_SIGNAL, LOOP_ROLE
from domain.edge.policies import PolicyState
from domain.faults import Fault
from domain.mci.messages import HoldDecision
from domain.model import ActionResult, Request
from starter.mci.requests import send_decision
from tests.patience import PATIENCE, answer_of
from tests.stack import ActionStack, Histories, opened
from tests.test_platform.test_payloads import OLD, TOKEN, body, post, write
from tests.user import spec
from workers import embedded
from workers.plugin import temporal_plugin
from workers.settings import WorkerSettings

T = TypeVar("T")

PATH, OTHER = "ns:web:mci:shop", "ns:web:mci:other"
SPEC = spec(size=1, csps=["aws"])
LEAD = wire.companion_id("org:web:policy:lead", LOOP_ROLE)
PLAIN = "it is not encrypted, and plaintext is refused"


@pytest.fixture(scope="module")
async def sealed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ActionStack]:
    """A stack with keys, an MCI and an edge policy in it, whose workflows have a payload or two to copy."""
    home = tmp_path_factory.mktemp("sealed")
    histories = Histories(home / "replayed")
    async with opened(home, histories, keys_file=write(home / "keys.json", "a", a=OLD)) as found:
        asking = ActionClient(found.client)
        for path in (PATH, OTHER):
            ticket = await asking.request_action(Request(path=path, action="create", spec=SPEC))
            assert (await asking.wait_for_outcome(path, ticket.run)).result is ActionResult.SUCCEEDED
        rule = {"app": "shop", "cloudlets": [{"cloudlet": "berlin", "cluster": "c1"}], "min_active": 0}
        for name in ("follow", "lead"):
            path = f"org:web:policy:{name}"
            ticket = await asking.request_action(Request(path=path, action="create", spec={"auto_provision": rule}))
            await asking.wait_for_outcome(path, ticket.run)
        yield found
    await histories.replay(data_converter(found.stack.settings))


@pytest.fixture
async def plain(sealed: ActionStack) -> Client:
    """Somebody who may write to the namespace, without keys."""
    return await Client.connect(sealed.server.address, plugins=[temporal_plugin()])


async def until(work: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE):
        return await work


def inside(error: BaseException | None) -> list[str | None]:
    """The types of the errors in a chain."""
    found: list[str | None] = []
    while error is not None:
        found += [error.type] if isinstance(error, ApplicationError) else []
        error = getattr(error, "cause", None) or error.__cause__
    return found


async def inputs(client: Client, workflow_id: str) -> list[Payload]:
    """The input of a workflow's newest run, as its history has it."""
    history = await client.get_workflow_handle(workflow_id).fetch_history()
    return list(history.events[0].workflow_execution_started_event_attributes.input.payloads)


async def status(sealed: ActionStack, path: str = PATH) -> str:
    return (await ActionClient(sealed.client).read_object(path)).status


async def lines(sealed: ActionStack, path: str = PATH) -> int:
    return len(await ActionClient(sealed.client).read_history(path))


async def test_a_workflow_that_is_started_in_plaintext_fails_and_says_why(sealed: ActionStack, plain: Client) -> None:
    before = await status(sealed), await lines(sealed)
    asked = {"path": PATH, "action": "suspend"}
    handle = await plain.start_workflow(wire.CONTROL_VMS, asked, id=PATH, task_queue=wire.ACTIONS_QUEUE)
    with pytest.raises(WorkflowFailureError) as caught:
        await until(handle.result())
    assert wire.REFUSED_PAYLOAD_ERROR_TYPE in inside(caught.value), "the type is readable without the keys"
    with pytest.raises(WorkflowFailureError) as caught:
        await sealed.client.get_workflow_handle(PATH, run_id=handle.result_run_id).result()
    assert PLAIN in str(caught.value.cause), "and the text with them"
    assert (await status(sealed), await lines(sealed)) == before


async def test_a_request_that_is_copied_to_another_workflow_is_refused(sealed: ActionStack, plain: Client) -> None:
    ticket = await ActionClient(sealed.client).request_action(Request(path=PATH, action="suspend"))
    assert (await ActionClient(sealed.client).wait_for_outcome(PATH, ticket.run)).status == "Suspended:1 (R:0/1)"
    before = await status(sealed, OTHER), await lines(sealed, OTHER)
    [copied] = await inputs(plain, PATH)
    handle = await plain.start_workflow(wire.CONTROL_VMS, RawValue(copied), id=OTHER, task_queue=wire.ACTIONS_QUEUE)
    with pytest.raises(WorkflowFailureError):
        await until(handle.result())
    with pytest.raises(WorkflowFailureError) as caught:
        await sealed.client.get_workflow_handle(OTHER, run_id=handle.result_run_id).result()
    assert f"it belongs to workflow {PATH} of namespace default, not to workflow {OTHER}" in str(caught.value.cause)
    assert (await status(sealed, OTHER), await lines(sealed, OTHER)) == before


async def until_memory(sealed: ActionStack, name: str, wanted: dict[str, int]) -> None:
    """Until a policy's loop has counted a signal: judging it may outlast the task that a query waits for."""
    async with asyncio.timeout(PATIENCE):
        while await memory(sealed, name) != wanted:
            await asyncio.sleep(0.05)


async def memory(sealed: ActionStack, name: str) -> dict[str, int]:
    """What a policy's loop has heard of its clients."""
    handle = sealed.client.get_workflow_handle(wire.companion_id(f"org:web:policy:{name}", LOOP_ROLE))
    return (await answer_of(handle, "memory", PolicyState)).clients


async def test_signals_and_updates_in_plaintext_or_copied_change_nothing(sealed: ActionStack, plain: Client) -> None:
    follow, lead = (wire.companion_id(f"org:web:policy:{name}", LOOP_ROLE) for name in ("follow", "lead"))
    demand = {"cloudlet": "berlin", "clients": 7}
    await plain.get_workflow_handle(lead).signal(DEMAND_SIGNAL, demand)
    assert await memory(sealed, "lead") == {}
    await sealed.client.get_workflow_handle(follow).signal(DEMAND_SIGNAL, demand)
    await until_memory(sealed, "follow", {"berlin": 7})
    events = (await plain.get_workflow_handle(follow).fetch_history()).events
    [copied] = [
        payload
        for event in events
        for payload in event.workflow_execution_signaled_event_attributes.input.payloads
        if event.workflow_execution_signaled_event_attributes.signal_name == DEMAND_SIGNAL
    ]
    await plain.get_workflow_handle(lead).signal(DEMAND_SIGNAL, RawValue(copied))
    assert await memory(sealed, "lead") == {}
    await sealed.client.get_workflow_handle(lead).signal(DEMAND_SIGNAL, demand)
    await until_memory(sealed, "lead", {"berlin": 7})


async def test_an_update_and_a_read_in_plaintext_are_refused_at_once(sealed: ActionStack, plain: Client) -> None:
    stranger = ActionClient(plain)
    asks: list[Callable[[], Awaitable[object]]] = [
        lambda: stranger.request_action(Request(path=PATH, action="resume")),
        lambda: stranger.read_object(PATH),
    ]
    for ask in asks:
        with pytest.raises(Unreachable) as caught, translate_errors("default"):
            await until(ask())
        assert "takes only what is encrypted" in str(caught.value)
        assert "RATCHET_KEYS_FILE" in caught.value.hint


async def test_a_result_that_somebody_sends_instead_of_the_worker_ends_the_run_and_is_not_believed(
    sealed: ActionStack, plain: Client
) -> None:
    """`temporal activity complete` is open to whoever may write to the namespace. It stopped the action for good."""
    asking, cloud = ActionClient(sealed.client), sealed.stack.simulated["aws"]
    await cloud.add_fault(Fault(kind="hang", vm=f"{OTHER}:*", verb="reboot", seconds=600))
    ticket = await asking.request_action(Request(path=OTHER, action="reboot"))
    handle = plain.get_workflow_handle(OTHER, run_id=ticket.run)
    async with asyncio.timeout(PATIENCE):
        while not (pending := (await handle.describe()).raw_description.pending_activities):
            await asyncio.sleep(0.05)
    which = {"workflow_id": OTHER, "run_id": ticket.run, "activity_id": pending[0].activity_id}
    await plain.get_async_activity_handle(**which).complete({"done": 1, "failed": 0})
    with pytest.raises(WorkflowFailureError) as caught:
        await until(sealed.client.get_workflow_handle(OTHER, run_id=ticket.run).result())
    assert PLAIN in str(caught.value.cause)
    await cloud.set_faults([])
    again = await asking.request_action(Request(path=OTHER, action="reboot"))
    assert (await until(asking.wait_for_outcome(OTHER, again.run))).result is ActionResult.SUCCEEDED


async def ask_when_connected(asking: ActionClient, request: Request) -> Ticket:
    """On a busy machine a CRM may miss its heartbeat; it connects again."""
    while refusal := (ticket := await asking.request_action(request)).admission.refusal:
        if "connected" not in refusal.message:
            break
        await asyncio.sleep(0.1)
    return ticket


async def test_a_crm_that_has_the_keys_serves_its_cloudlet(sealed: ActionStack) -> None:
    cloudlet, asking = "org:web:cloudlet:berlin", ActionClient(sealed.client)
    given = {"RATCHET_HOME": str(sealed.home), "RATCHET_KEYS_FILE": str(sealed.home / "keys.json")}
    command = (sys.executable, "-m", "workers.crm", "--cloudlet", cloudlet, "--latency", "0")
    environment = {**os.environ, **given, "TEMPORAL_ADDRESS": sealed.server.address}
    crm = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        for path in (cloudlet, f"{cloudlet}:cluster:c1"):
            ticket = await until(ask_when_connected(asking, Request(path=path, action="create", spec={})))
            assert not ticket.admission.refusal, ticket.admission.refusal
            assert (await until(asking.wait_for_outcome(path, ticket.run))).status == "Ready"
    finally:
        crm.terminate()
        await until(crm.wait())


async def test_a_client_with_keys_refuses_what_a_worker_without_them_answers(sealed: ActionStack) -> None:
    said = Payload(metadata={"encoding": b"json/plain"}, data=b'"Running"')
    given = WorkerSettings(home=sealed.home, keys_file=str(sealed.home / "keys.json"))
    with pytest.raises(RefusedPayload, match=PLAIN):
        await data_converter(given).decode([said])
    with pytest.raises(Unreachable) as caught, translate_errors("default"):
        raise RefusedPayload(PLAIN)
    assert "on all workers" in caught.value.hint


async def test_a_memo_in_plaintext_does_not_pass_for_ours(sealed: ActionStack, plain: Client) -> None:
    """It would make a stranger's run answer for a request of ours."""
    path = "ns:web:mci:squatted"
    handle = await plain.start_workflow(
        wire.CONTROL_VMS, {}, id=path, task_queue="nobody", memo={"request_id": "mine", "asked": "x"}
    )
    newest = await ActionClient(sealed.client).newest_run(path)
    assert newest is not None
    assert await newest.memo() == {}
    await handle.terminate()


@pytest.mark.parametrize("address", ["encode", f"workflow/{LEAD}/encode"])
async def test_a_signal_through_the_codec_endpoint_arrives(sealed: ActionStack, plain: Client, address: str) -> None:
    """As the Web UI and the `temporal` CLI send it: the endpoint encrypts, they send what it answers."""
    clients = len(address)
    codec = EncryptionCodec(load_keys(str(sealed.home / "keys.json")))
    text = json.dumps({"cloudlet": "berlin", "clients": clients}).encode()
    endpoint = CodecServer(0, codec, [], TOKEN)
    with serve_in_threads(endpoint):
        asked = await body(Payload(metadata={"encoding": b"json/plain"}, data=text))
        code, answer, _ = await asyncio.to_thread(post, f"{endpoint.url}/{TOKEN}/{address}", asked)
    assert code == 200
    [encrypted] = Parse(answer, Payloads()).payloads
    await plain.get_workflow_handle(LEAD).signal(DEMAND_SIGNAL, RawValue(encrypted))
    await until_memory(sealed, "lead", {"berlin": clients})


async def test_temporals_own_cli_signals_through_the_codec_endpoint_and_not_without(sealed: ActionStack) -> None:
    endpoint = CodecServer(0, EncryptionCodec(load_keys(str(sealed.home / "keys.json"))), [], TOKEN)
    words = ["workflow", "signal", "--address", sealed.server.address, "--workflow-id", LEAD, "--name", DEMAND_SIGNAL]
    before = await memory(sealed, "lead")
    with serve_in_threads(endpoint):
        for clients, more in (
            (41, []),
            (42, ["--codec-endpoint", f"{endpoint.url}/{TOKEN}/workflow/{LEAD}"]),
            (43, ["--codec-endpoint", endpoint.url, "--codec-auth", f"Bearer {TOKEN}"]),
        ):
            told = ["--input", json.dumps({"cloudlet": "berlin", "clients": clients})]
            process = await asyncio.create_subprocess_exec(embedded.find_temporal_binary(), *words, *told, *more)
            assert await until(process.wait()) == 0
            await until_memory(sealed, "lead", {"berlin": clients} if more else before)


async def test_what_is_sealed_to_one_namespace_is_refused_in_another(sealed: ActionStack) -> None:
    keys = str(sealed.home / "keys.json")
    given = WorkerSettings(home=sealed.home, keys_file=keys)
    other = await Client.connect(
        sealed.server.address, namespace="elsewhere", plugins=[temporal_plugin(payloads=data_converter(given))]
    )
    [ours] = await sealed.client.data_converter.encode(["secret"])
    seals = {PayloadSeal.parse(ours.metadata["sealed-to"].decode()).namespace}
    [theirs] = await other.data_converter.encode(["secret"])
    seals.add(PayloadSeal.parse(theirs.metadata["sealed-to"].decode()).namespace)
    assert seals == {"default", "elsewhere"}
    with pytest.raises(ApplicationError, match="of namespace elsewhere, not to"):
        await sealed.client.data_converter.decode([theirs], [str])


async def test_every_payload_of_an_action_names_its_workflow(sealed: ActionStack, plain: Client) -> None:
    ticket = await ActionClient(sealed.client).request_action(Request(path=OTHER, action="reboot"))
    await ActionClient(sealed.client).wait_for_outcome(OTHER, ticket.run)
    handle = plain.get_workflow_handle(OTHER, run_id=ticket.run)
    found = seals_in((await handle.fetch_history()).to_json_dict())
    assert {seal.owner for seal in found} == {OTHER}
    assert {seal.field.split()[0] for seal in found} == {"workflow", "activity"}


def seals_in(value: Any) -> list[PayloadSeal]:
    """The seals of all payloads within a history as JSON."""
    if isinstance(value, list):
        return [seal for each in value for seal in seals_in(each)]
    if not isinstance(value, dict):
        return []
    found = [seal for each in value.values() for seal in seals_in(each)]
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and "sealed-to" in metadata:
        found.append(PayloadSeal.parse(base64.b64decode(metadata["sealed-to"]).decode()))
    return found


def introducing(file: Path, hours: float) -> str:
    """A keys file whose transition ends in so many hours."""
    until = datetime.now(UTC) + timedelta(hours=hours)
    keys = {"active": "a", "keys": {"a": OLD}, "plaintext_until": until.isoformat()}
    file.write_text(json.dumps(keys))
    file.chmod(0o600)
    return str(file)


async def test_while_keys_are_introduced_plaintext_is_read_and_what_is_written_is_sealed(tmp_path: Path) -> None:
    old, over = (EncryptionCodec(load_keys(introducing(tmp_path / f"k{n}", n))) for n in (1, -1))
    plaintext = Payload(metadata={"encoding": b"json/plain"}, data=b"1")
    assert await old.decode([plaintext]) == [plaintext] == [old.decode_anywhere(plaintext)]
    [sealed] = await old.encode([plaintext])
    assert sealed.metadata["encoding"] == b"binary/encrypted"
    assert await over.decode([sealed]) == [plaintext]
    with pytest.raises(RefusedPayload, match=PLAIN):
        await over.decode([plaintext])
    elsewhere = old.with_seal(PayloadSeal("default", "workflow", OTHER))
    with pytest.raises(RefusedPayload, match="it belongs to"):
        await elsewhere.with_seal(PayloadSeal("default", "workflow", PATH)).decode(await elsewhere.encode([plaintext]))


async def test_keys_are_introduced_where_actions_are_under_way(tmp_path: Path) -> None:
    held = {**SPEC, "option": "hold"}
    async with opened(tmp_path) as before:
        ticket = await ActionClient(before.client).request_action(Request(path=PATH, action="create", spec=held))
        assert ticket.admission.grant
        await register_store(before.client, "store-1", "here")
    during = introducing(tmp_path / "keys", 1)
    async with opened(tmp_path, keys_file=during) as now:
        asking = ActionClient(now.client)
        async with asyncio.timeout(PATIENCE):
            while await status(now) != "Prepared":
                await asyncio.sleep(0.05)
        await send_decision(asking, PATH, "continue", HoldDecision())
        assert (await asking.wait_for_outcome(PATH, ticket.run)).result is ActionResult.SUCCEEDED
        await register_store(now.client, "store-1", "here")
        ticket = await asking.request_action(Request(path=PATH, action="suspend"))
        await asking.wait_for_outcome(PATH, ticket.run)
        assert {seal.owner for seal in seals_in(await inputs_as_json(now, ticket.run))} == {PATH}
    async with opened(tmp_path, keys_file=introducing(tmp_path / "keys", -1)) as after:
        assert await read_registered_store(after.client) == "store-1", "what outlives the transition is sealed"
        swept = after.client.get_schedule_handle(wire.HEAL_SCHEDULE)
        [order] = (await swept.describe()).raw_description.schedule.action.start_workflow.input.payloads
        assert order.metadata["encoding"] == b"binary/encrypted"
        plain = await Client.connect(after.server.address, plugins=[temporal_plugin()])
        asked = {"path": PATH, "action": "resume"}
        handle = await plain.start_workflow(wire.CONTROL_VMS, asked, id=PATH, task_queue=wire.ACTIONS_QUEUE)
        with pytest.raises(WorkflowFailureError) as caught:
            await until(handle.result())
        assert wire.REFUSED_PAYLOAD_ERROR_TYPE in inside(caught.value)


async def inputs_as_json(stack: ActionStack, run: str) -> dict[str, Any]:
    return (await stack.client.get_workflow_handle(PATH, run_id=run).fetch_history()).to_json_dict()
