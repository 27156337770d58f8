"""Random JSON as signals, updates and queries to running workflows; random bytes to HTTP endpoints."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import strategies as st
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import RawValue
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from client.codec import CodecServer, serve_in_threads
from client.encryption import EncryptionCodec, EncryptionKeys
from domain.edge import messages as edge_wire
from domain.invariants import VerificationReport
from domain.mci.messages import CONTINUE, WITHDRAW
from domain.model import ReadQuery
from domain.registry import KINDS
from domain.wire import VERIFY_ACTIVITY, companion_id
from tests.fuzz.inputs import SEED, drawn, mappings, spoilt, texts, values
from tests.patience import PATIENCE, answer_of
from tests.test_edge.kit import QUICK, edge_of, fault
from tests.test_machines.site import MachineSite
from tests.user import User
from workers import embedded
from workers.families import WORKFLOWS

SECONDS = timedelta(seconds=20)
SECONDS_OF_FIRE = 120  # for all the workflows together: each takes some hundred messages a second
WAITING = {"cluster", "mci", "link", "loop", "bin"}
ENDLESS = dict.fromkeys(QUICK, 86_000)  # what waits must not give up by itself meanwhile

# Words that mean something: with something wrong in them. None of them has the proof that the cloudlet asks for.
SOUND: dict[str, dict[str, Any]] = {
    edge_wire.CRM_RESPONSE: {"state": "Ready", "notify_id": 1, "progress": {"task": 1, "of": 2}, "runtime": {"a": 1}},
    edge_wire.CRM_CONNECT: {"notify_id": 99, "version": "v1", "instances": {"x": {"state": "Ready"}}},
    edge_wire.CRM_DISCONNECT: {"notify_id": 1, "reason": "bye"},
    edge_wire.DEMAND_SIGNAL: {"cloudlet": "berlin", "clients": 3, "cpu": 100},
}
# A message came during the task; a task took two seconds, on a busy machine. Both are tried again.
EXCUSED = ("UnhandledCommand", "TMPRL1101")
DECISIONS = {CONTINUE, WITHDRAW}  # anybody may decide: what fits them is not an attack


def named(kind: str) -> set[str]:
    """Every signal, update or query that any of our workflows hears."""
    return {
        str(name) for each in WORKFLOWS for name in getattr(workflow._Definition.must_from_class(each), kind) if name
    }


SIGNALS = sorted(named("signals") - DECISIONS)
UPDATES = sorted(named("updates") - DECISIONS)
QUERIES = sorted(named("queries"))

DEEP = b"[" * 4_000 + b"]" * 4_000
ODD = [
    *(b"", b"null", b"{}", b"[]", b'""', b"{", b"\xff", b"NaN", b"9" * 5_000, b'"' + b"x" * 100_000 + b'"', DEEP),
    *(
        b'{"state": ' + DEEP + b"}",
        b'{"state": "Ready", "notify_id": 1, "runtime": {"a": ' + b"[" * 150 + b"]" * 150 + b"}}",
    ),
    b'{"state": "Ready", "notify_id": 1, "proof": "AAAA", "runtime": {"a": ' + b"[" * 190 + b"]" * 190 + b"}}",
]


def as_bytes(value: object) -> bytes:
    return json.dumps(value).encode()


def raw(data: bytes) -> RawValue:
    """As somebody sends it who does not use our converter."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))


@pytest.fixture
async def busy(user: User, home: Path, client: Client) -> AsyncIterator[list[str]]:
    """Workflows that wait: an instance's change, a link, a policy, a held MCI, a clock, a bin."""
    async with edge_of(user, home, client) as edge:
        ticket = await edge.begun(
            edge.at("berlin"), "create", spec={"key": edge.token().create_token(), "patience": ENDLESS}
        )
        await edge.start_crm()
        await edge.end(ticket)
        await user.do(edge.at("berlin", "c2"), "create", spec={})
        scale = {"cloudlet": "berlin", "cluster": "c2", "max_nodes": 3, "target_cpu": 50, "interval": 86_000}
        await user.do(f"org:{user.ns}:policy:scale", "create", spec={"auto_scale": scale})
        edge.set_faults(fault("silent"))
        await edge.begun(edge.at("berlin", "c1"), "create", spec={})
        await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
        await user.until_status(user.mci(), "Prepared")
        estate = await MachineSite(user.asking, user.service, user.ns).with_account()
        await estate.do(estate.space(), "create")
        await estate.do(estate.space(), "delete")
        async with asyncio.timeout(PATIENCE):
            while not set(map(kind_of, ids := await running(user, client))) >= WAITING:
                await asyncio.sleep(0.05)
        yield ids
        for each in ids:
            with suppress(RPCError):
                await client.get_workflow_handle(each).terminate("the test is over")


def kind_of(workflow_id: str) -> str:
    return workflow_id.rsplit(":", 2)[-2] if "::" not in workflow_id else workflow_id.rsplit("::")[-1]


async def running(user: User, client: Client) -> list[str]:
    """This test's workflows that run. Temporal lists them late: some are missing at first, and some have ended."""
    listed = {each.id async for each in client.list_workflows("ExecutionStatus = 'Running'")}
    mine = sorted(each for each in listed if f":{user.ns}" in each)
    states = [(await client.get_workflow_handle(each).describe()).status for each in mine]
    return [each for each, state in zip(mine, states, strict=True) if state is WorkflowExecutionStatus.RUNNING]


async def shoot(handle: WorkflowHandle[Any, Any], kind: str, name: str, *data: bytes) -> None:
    """Whatever becomes of it is an answer, or an error of Temporal's; never a hang."""
    args = [raw(each) for each in data]
    with suppress(RPCError, TemporalError):
        if kind == "signal":
            await handle.signal(name, args=args)
        elif kind == "update":
            await handle.execute_update(name, args=args, rpc_timeout=SECONDS)
        else:
            await handle.query(name, args=args, rpc_timeout=SECONDS)


async def fire(handle: WorkflowHandle[Any, Any], shots: list[tuple[Any, ...]], seconds: float) -> None:
    """All of them, or as many as come in this time."""
    until = monotonic() + seconds
    for start in range(0, len(shots), 20):
        if monotonic() > until:
            return
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(shoot(handle, *shot) for shot in shots[start : start + 20]))


async def objects(user: User) -> dict[str, Any]:
    """All that is kept of this test's objects."""
    seen = {}
    for kind in KINDS:
        for view in await user.service.inventory.list_objects(kind, "", "", 5_000):
            if f":{user.ns}" in view.path:
                seen[view.path] = (view.status, view.spec, view.epoch, view.target_action, view.error)
    return seen


async def test_no_message_moves_a_workflow_that_does_not_understand_it(
    user: User, client: Client, busy: list[str], many: int
) -> None:
    before, chance = await objects(user), random.Random(SEED)
    odd = [*ODD, *map(as_bytes, drawn(st.one_of(values, mappings), 12 * many))]
    for path in busy:
        handle = client.get_workflow_handle(path)
        shots: list[tuple[Any, ...]] = [("query", name, odd[number]) for number, name in enumerate(QUERIES)]
        for kind, names in (("signal", SIGNALS), ("update", UPDATES)):
            for name in names:
                wrong = map(as_bytes, drawn(spoilt(SOUND[name]), 6 * many)) if name in SOUND else []
                shots += [(kind, name, data) for data in (*odd, *wrong)]
                shots += [(kind, name), (kind, name, b"{}", b"{}"), (kind, name, b"1", b"2", b"3")]
        chance.shuffle(shots)  # some of every kind, if there is no time for all
        await fire(handle, shots, SECONDS_OF_FIRE / len(busy))
    for path in busy:
        handle = client.get_workflow_handle(path)
        assert await answers(handle), path
        failed = [
            event.workflow_task_failed_event_attributes.failure.message
            for event in (await handle.fetch_history()).events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        ]
        assert [each for each in failed if each and not any(word in each for word in EXCUSED)] == [], path
    assert await objects(user) == before
    found = await user.asking.run_query(
        VERIFY_ACTIVITY, ReadQuery(path=f"org:{user.ns}"), VerificationReport, seconds=PATIENCE
    )
    assert found.findings == []


async def answers(handle: WorkflowHandle[Any, Any]) -> bool:
    """It is still there, and has worked through all that was sent: a query waits for that."""
    return bool(await answer_of(handle, "__stack_trace", str))


@pytest.fixture
def endpoint() -> Iterator[CodecServer]:
    key = base64.b64encode(b"k" * 32).decode()
    server = CodecServer(
        0,
        EncryptionCodec(EncryptionKeys.model_validate({"active": "a", "keys": {"a": key}})),
        ["http://ui.example"],
        "token",
    )
    with serve_in_threads(server):
        yield server


def asked(port: int, path: str, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_the_codec_endpoint_answers_whatever_is_sent(
    endpoint: CodecServer, many: int, capfd: pytest.CaptureFixture[str]
) -> None:
    payload = {"metadata": {"encoding": base64.b64encode(b"binary/encrypted").decode()}, "data": "AAAA"}
    sealed = {**payload, "metadata": {**payload["metadata"], "encryption-key-id": base64.b64encode(b"a").decode()}}  # type: ignore[dict-item]
    tries = st.one_of(
        st.binary(max_size=80), values.map(as_bytes), spoilt({"payloads": [payload, sealed]}).map(as_bytes)
    )
    for number, body in enumerate([b"", b"{", b"[" * 5_000, *drawn(tries, 60 * many)]):
        status = asked(
            endpoint.server_port, ("/token/decode", "/token/encode", "/token/workflow/w/encode")[number % 3], body, {}
        )
        assert status in (200, 400), body
    for length in ("-1", "x", "9" * 30, "²", ""):
        assert asked(endpoint.server_port, "/token/decode", b"", {"content-length": length}) in (200, 400, 413), length
    assert "Traceback" not in capfd.readouterr().err


async def test_temporals_http_api_takes_signals_that_we_can_bear(
    user: User, client: Client, server: embedded.EmbeddedServer, home: Path, many: int
) -> None:
    async with edge_of(user, home, client) as edge:
        ticket = await edge.begun(edge.at("berlin"), "create", spec={"patience": ENDLESS})
        path = edge.at("berlin")
        port = int(server.http.rsplit(":", 1)[-1])
        url = f"/api/v1/namespaces/default/workflows/{path}/signal/{edge_wire.CRM_RESPONSE}"
        headers = {"content-type": "application/json", "host": server.http.removeprefix("http://")}
        bodies = [
            b"",
            b"{",
            b'{"input": 1}',
            b'{"input": [{"state": "Ready"}]}',
            b'{"input": [1, 2]}',
            b'{"input": [{"state": ' + b"[" * 500,
        ]
        tries = st.one_of(values, spoilt({"input": [{"state": "Ready", "notify_id": 7, "errors": []}]}))
        bodies += [as_bytes(each) for each in drawn(tries, 40 * many)]
        for body in bodies:
            status = await asyncio.to_thread(asked, port, url, body, headers)
            assert status in (200, 400, 404, 413), (status, body)
        for name in drawn(texts, 10 * many):
            word = "".join(f"%{byte:02x}" for byte in name.encode("utf-8", "replace"))
            status = await asyncio.to_thread(
                asked, port, f"/api/v1/namespaces/default/workflows/{word}/signal/x", b"{}", {}
            )
            assert status < 500, ascii(name)
        assert await edge.status(path) == "Init"
        assert await answers(client.get_workflow_handle(path))
        await client.get_workflow_handle(path).cancel()
        assert (await edge.end(ticket)).result == "cancelled"


async def test_a_link_that_is_started_by_hand_with_anything_ends_or_waits_for_a_crm(
    user: User, client: Client, many: int
) -> None:
    """signal-with-start is for a CRM that connects: it must not leave workflows that fail for ever."""
    path = f"org:{user.ns}:cloudlet:nowhere"
    wrong = map(as_bytes, drawn(spoilt(SOUND[edge_wire.CRM_CONNECT]), 10 * many))
    for number, data in enumerate([*ODD, *wrong]):
        handle = await client.start_workflow(
            edge_wire.CLOUDLET_LINK,
            {"cloudlet": path},
            id=companion_id(path, edge_wire.LINK_ROLE),
            task_queue="actions",
            start_signal=edge_wire.CRM_CONNECT,
            start_signal_args=[raw(data)],
        )
        async with asyncio.timeout(PATIENCE):
            assert await handle.result() is None, number
    assert path not in await objects(user)
