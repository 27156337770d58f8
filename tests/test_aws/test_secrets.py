"""Planted credentials appear nowhere, although the worker logs everything and the cloud repeats them in its errors."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.client import Client

from client.connection import connect_temporal
from domain.faults import Fault, FaultKind
from domain.model import ActionResult, Request
from starter.command import run_command
from tests.faulty import Moto
from tests.stack import until_polled
from tests.test_aws.conftest import REGION
from workers import embedded
from workers.plugin import temporal_plugin

PLANTED = {
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDPLANTED00",
    "AWS_SECRET_ACCESS_KEY": "planted/secret+key/0123456789",
    "AWS_SESSION_TOKEN": "planted//session//token//0123456789",
}
WEB = "ns:default:mci:web"


@dataclass
class Planted:
    """A server, a worker process with planted credentials, and all that was ever said."""

    home: Path
    client: Client
    said: bytearray

    async def do(self, action: str, spec: dict[str, Any] | None = None) -> ActionResult:
        client = await until_polled(self.client, "cloud-aws")
        ticket = await client.request_action(Request(path=WEB, action=action, spec=spec))
        assert ticket.admission.grant, ticket.admission.refusal
        outcome = await client.wait_for_outcome(WEB, ticket.run)
        self.said += outcome.model_dump_json().encode()
        return outcome.result

    async def type(self, words: str) -> None:
        """A command; what it prints is kept."""
        screen = io.StringIO()
        with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            await run_command(words.split())
        self.said += screen.getvalue().encode()


@pytest.fixture
async def planted(moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    place = moto.document(REGION, "planted") | {"credentials": {"from": "environment", "prefix": "PLANTED_"}}
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump({"connections": {"frankfurt": place}}))
    server = await embedded.start_server(tmp_path)
    for name, value in {
        "TEMPORAL_ADDRESS": server.address,
        "RATCHET_HOME": str(tmp_path),
        "RATCHET_CONNECTIONS": str(tmp_path / "connections.yaml"),
        "RATCHET_LOG_LEVEL": "debug",
    }.items():
        monkeypatch.setenv(name, value)
    env = os.environ | {f"PLANTED_{name}": value for name, value in PLANTED.items()}
    with (tmp_path / "worker.log").open("wb") as log:
        worker = await asyncio.create_subprocess_exec(sys.executable, "-m", "workers", env=env, stdout=log, stderr=log)
    yield Planted(tmp_path, await connect_temporal(tmp_path, temporal_plugin()), bytearray())
    if worker.returncode is None:
        worker.terminate()
        await worker.wait()
    await server.stop_server()
    moto.ec2.clear()


async def test_no_credential_is_in_any_payload_history_log_record_error_or_answer(planted: Planted, moto: Moto) -> None:
    moto.ec2.said = f"<<{' '.join(PLANTED.values())}>>"
    moto.ec2.add_fault(Fault(kind=FaultKind.THROTTLE, verb="create", times=1))
    moto.ec2.add_fault(Fault(kind=FaultKind.UNAVAILABLE, verb="describe", times=1))
    moto.ec2.add_fault(Fault(kind=FaultKind.FAIL, verb="create", vm="a-1"))
    spec = {"subGroups": [{"name": "a", "connectionName": "frankfurt", "subGroupSize": 3}]}
    assert await planted.do("create", spec) is ActionResult.PARTIAL
    moto.ec2.add_fault(Fault(kind=FaultKind.FAIL, verb="suspend", vm="a-2"))
    assert await planted.do("suspend") is ActionResult.PARTIAL
    for words in (
        "connections --check",
        f"get {WEB}:vm:a-1",
        "history default/web",
        "mci status default/web",
        "doctor",
    ):
        await planted.type(words)
    moto.ec2.clear()
    assert await planted.do("delete") is ActionResult.SUCCEEDED
    await _every_history(planted)
    for file in sorted(planted.home.rglob("*")):  # the databases of Temporal and of the inventory, logs, all there is
        if file.is_file():
            planted.said += file.read_bytes()
    said = bytes(planted.said)
    assert b"UnsupportedOperation: told to fail <<*** *** ***>>" in said, "the cloud's errors did get here"
    assert b'"level": "debug"' in said, "and the worker did log everything"
    assert [name for name, value in PLANTED.items() if value.encode() in said] == []


async def _every_history(planted: Planted) -> None:
    """As clients see them: memos, attributes, payloads and failures, decoded."""
    async for workflow in planted.client.list_workflows():
        handle = planted.client.get_workflow_handle(workflow.id, run_id=workflow.run_id)
        history = await handle.fetch_history()
        planted.said += history.to_json().encode()
        planted.said += str(await workflow.memo()).encode() + str(workflow.typed_search_attributes).encode()
        for event in history.events:
            planted.said += event.SerializeToString()
