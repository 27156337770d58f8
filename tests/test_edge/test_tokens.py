"""A cloudlet with a key ignores missing, wrong, foreign, altered and replayed proofs."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from activities.signatures import NO_PROOF_MESSAGE, WRONG_PROOF_MESSAGE, why_unproven
from domain.edge import messages
from domain.edge.messages import CrmAddress, Reconnected, ReportedInstance
from domain.edge.proofs import text_to_sign
from domain.errors import Refused
from domain.wire import companion_id
from providers.edge.token import CrmToken
from starter.command import run_command
from tests.patience import PATIENCE
from tests.test_edge.kit import QUICK, Edge, fault
from tests.test_edge.test_by_hand import _commands_find_the_server, by_curl, by_temporal  # noqa: F401  a fixture
from tests.test_floods import count_events, in_one_task
from workers import embedded

Message = dict[str, Any]


async def guarded(edge: Edge, name: str = "berlin") -> str:
    """A cloudlet with a token, and its CRM, Ready."""
    key = edge.token(name).create_token()
    ticket = await edge.begun(edge.at(name), "create", spec={"key": key, "patience": QUICK})
    await edge.start_crm(name)
    done = await edge.end(ticket)
    assert done.status == "Ready", done
    return edge.at(name)


def _missing(_own: CrmToken, _other: CrmToken, _path: str, message: Message) -> Message:
    return message


def _wrong(_own: CrmToken, other: CrmToken, path: str, message: Message) -> Message:
    return other.sign_message(messages.CRM_RESPONSE, path, message)


def _of_another_object(own: CrmToken, _other: CrmToken, path: str, message: Message) -> Message:
    return own.sign_message(messages.CRM_RESPONSE, f"{path}x", message)


def _of_another_signal(own: CrmToken, _other: CrmToken, path: str, message: Message) -> Message:
    return own.sign_message(messages.CRM_CONNECT, path, message)


def _altered(own: CrmToken, _other: CrmToken, path: str, message: Message) -> Message:
    return {
        **own.sign_message(messages.CRM_RESPONSE, path, {**message, "state": "Creating"}),
        "state": message["state"],
    }


def _with_more(own: CrmToken, _other: CrmToken, path: str, message: Message) -> Message:
    return {**own.sign_message(messages.CRM_RESPONSE, path, message), "runtime": {"endpoint": "evil.example"}}


def _of_an_earlier_action(own: CrmToken, _other: CrmToken, path: str, message: Message) -> Message:
    return own.sign_message(messages.CRM_RESPONSE, path, {**message, "epoch": message["epoch"] - 1})


def _unasked(own: CrmToken, _other: CrmToken, path: str, message: Message) -> Message:
    return own.sign_message(messages.CRM_RESPONSE, path, {key: each for key, each in message.items() if key != "epoch"})


def _no_base64(own: CrmToken, _other: CrmToken, path: str, message: Message) -> Message:
    return {**message, "proof": "§$%&"}


FORGERIES: list[tuple[Callable[[CrmToken, CrmToken, str, Message], Message], str]] = [
    (_missing, NO_PROOF_MESSAGE),
    (_wrong, WRONG_PROOF_MESSAGE),
    (_of_another_object, WRONG_PROOF_MESSAGE),
    (_of_another_signal, WRONG_PROOF_MESSAGE),
    (_altered, WRONG_PROOF_MESSAGE),
    (_with_more, WRONG_PROOF_MESSAGE),
    (_no_base64, WRONG_PROOF_MESSAGE),
    (_of_an_earlier_action, "it answers the request with epoch"),
    (_unasked, "it answers the request with epoch 0"),
]


async def test_an_action_hears_only_what_is_proven(edge: Edge, tmp_path: Path) -> None:
    await guarded(edge)
    edge.set_faults(fault("silent"))
    path = edge.at("berlin", "c1")
    ticket = await edge.begun(path, "create", spec={})
    view, notify_id, other = await edge.see(path), await edge.notify_id(), CrmToken(tmp_path / "other")
    other.create_token()
    message = {"state": "Ready", "errors": [], "notify_id": notify_id, "epoch": view.epoch}
    handle = edge.client.get_workflow_handle(path)
    for number, (forge, why) in enumerate(FORGERIES, start=1):
        await handle.signal(messages.CRM_RESPONSE, forge(edge.token(), other, path, message))
        async with asyncio.timeout(PATIENCE):
            while len(told := await edge.ignored(path)) < number:
                await asyncio.sleep(0.02)
        assert why in told[-1], forge.__name__
        assert await edge.status(path) == "CreateRequested"
    signed = edge.token().sign_message(messages.CRM_RESPONSE, path, message)
    await handle.signal(messages.CRM_RESPONSE, signed)
    assert (await edge.end(ticket)).status == "Ready"
    assert "PRIVATE" not in (await handle.fetch_history()).to_json()


async def test_an_answer_of_one_action_does_not_end_the_next_one(edge: Edge) -> None:
    """A reader of a history can copy a proof; it is valid only for the action that it was made for."""
    await guarded(edge)
    path = edge.at("berlin", "c1")
    assert (await edge.user.do(path, "create", spec={})).status == "Ready"
    history = (await edge.client.get_workflow_handle(path).fetch_history()).to_json_dict()
    said = [each["workflowExecutionSignaledEventAttributes"] for each in history["events"] if "Signaled" in str(each)]
    ready = [json.loads(base64.b64decode(each["input"]["payloads"][0]["data"])) for each in said if each]
    genuine = next(each for each in ready if each.get("state") == "Ready")
    assert genuine["proof"]
    edge.set_faults(fault("silent"))
    ticket = await edge.begun(path, "update", spec={"nodes": 2})
    await edge.client.get_workflow_handle(path).signal(messages.CRM_RESPONSE, genuine)
    await edge.until_told(path, "it answers the request with epoch")
    assert await edge.status(path) == "UpdateRequested"
    edge.set_faults()
    await edge.client.get_workflow_handle(path).cancel()
    assert (await edge.end(ticket)).result == "cancelled"


async def test_an_answer_is_read_after_the_connection_on_which_it_came(edge: Edge) -> None:
    """On a busy machine both come in one task, and to confirm a connection takes a moment."""
    path, signaled = edge.at("berlin"), EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    ticket = await edge.begun(path, "create", spec={"key": edge.token().create_token(), "patience": QUICK})
    async with in_one_task(edge.client, path), asyncio.timeout(PATIENCE):
        await edge.start_crm()
        while (await count_events(edge.client, path))[signaled] < 2:  # connected and Ready
            await asyncio.sleep(0.05)
    done = await edge.end(ticket)
    assert done.status == "Ready", done


async def test_nobody_can_pretend_that_the_crm_is_back(edge: Edge) -> None:
    """The link tells an action of a new connection by signal; the action asks the inventory whether it is true."""
    cloudlet = await guarded(edge)
    edge.set_faults(fault("silent"))
    path = edge.at("berlin", "c1")
    ticket = await edge.begun(path, "create", spec={})
    notify_id = await edge.notify_id()
    for forged in (notify_id, notify_id + 1):
        address = CrmAddress(cloudlet=cloudlet, version="v1", notify_id=forged)
        news = Reconnected(address=address, reported={path: ReportedInstance(state="Ready")})
        await edge.client.get_workflow_handle(path).signal(messages.RECONNECTED, news)
    await edge.until_told(path, f"there is no connection with notify-id {notify_id + 1}")
    assert await edge.status(path) == "CreateRequested"
    await edge.stop_crm()
    await edge.start_crm()  # a real one
    edge.set_faults()
    assert (await edge.end(ticket)).status == "Ready"


@pytest.mark.parametrize("forge", [_missing, _wrong])
async def test_a_connection_and_a_goodbye_are_proven_too(edge: Edge, tmp_path: Path, forge: Any) -> None:
    cloudlet, other = await guarded(edge), CrmToken(tmp_path / "other")
    other.create_token()
    notify_id = await edge.notify_id()
    link = edge.client.get_workflow_handle(companion_id(cloudlet, messages.LINK_ROLE))
    connect = {"notify_id": notify_id + 5, "version": "v1", "instances": {}}
    signed = connect if forge is _missing else other.sign_message(messages.CRM_CONNECT, cloudlet, connect)
    await edge.connect("berlin", signed)
    why = NO_PROOF_MESSAGE if forge is _missing else WRONG_PROOF_MESSAGE
    assert (await edge.until_told(cloudlet, why)).to == "Init"
    await link.signal(messages.CRM_DISCONNECT, forge(edge.token(), other, cloudlet, {"notify_id": notify_id}))
    await link.signal(
        messages.CRM_RESPONSE, forge(edge.token(), other, cloudlet, {"state": "X", "notify_id": notify_id})
    )
    async with asyncio.timeout(PATIENCE):
        while len([each for each in await edge.ignored(cloudlet) if why in each]) < 3:
            await asyncio.sleep(0.02)
    assert (await edge.status(cloudlet), await edge.notify_id()) == ("Ready", notify_id)
    assert (await edge.user.do(edge.at("berlin", "c1"), "create", spec={})).status == "Ready"


async def test_the_whole_life_of_a_cloudlet_with_a_token(edge: Edge) -> None:
    cloudlet = await guarded(edge)
    cluster, app = edge.at("berlin", "c1"), edge.at("berlin", "c1", "shop")
    for path, action, spec in [
        (cluster, "create", {}),
        (app, "create", {}),
        (cluster, "update", {"nodes": 3}),
        (cloudlet, "maintenance-start", {}),
        (cloudlet, "maintenance-end", {}),
        (cluster, "delete", {"cascade": True}),
        (cloudlet, "delete", None),
    ]:
        done = await edge.user.do(path, action, spec=spec)
        assert done.result == "succeeded", done
    await edge.at_rest()


async def test_another_token_counts_at_once_and_the_crm_comes_back_by_itself(edge: Edge) -> None:
    cloudlet = await guarded(edge)
    before = await edge.notify_id()
    old = edge.token().public_key()
    new = edge.token().create_token()
    assert new != old
    done = await edge.user.do(cloudlet, "rekey", spec={"key": new})
    assert done.result == "succeeded"
    await edge.until(cloudlet, "Ready")
    assert await edge.notify_id() > before
    assert (await edge.user.do(edge.at("berlin", "c1"), "create", spec={})).status == "Ready"
    await edge.at_rest()


async def test_a_crm_without_the_new_token_stays_outside(edge: Edge, tmp_path: Path) -> None:
    cloudlet = await guarded(edge)
    done = await edge.user.do(cloudlet, "rekey", spec={"key": CrmToken(tmp_path / "new").create_token()})
    assert done.result == "succeeded"
    await edge.until(cloudlet, "Offline")
    await edge.until_told(cloudlet, WRONG_PROOF_MESSAGE)
    assert "takes no changes now: it is Offline" in await edge.user.refused(edge.at("berlin", "c1"), "create", spec={})
    assert (await edge.user.do(cloudlet, "rekey", spec={"key": ""})).result == "succeeded"
    await edge.until(cloudlet, "Ready")


async def test_a_token_is_not_changed_while_something_runs(edge: Edge) -> None:
    cloudlet = await guarded(edge)
    edge.set_faults(fault("silent"))
    ticket = await edge.begun(edge.at("berlin", "c1"), "create", spec={})
    assert "409 Conflict" in await edge.user.refused(cloudlet, "rekey", spec={"key": ""})
    edge.set_faults()
    await edge.client.get_workflow_handle(edge.at("berlin", "c1")).cancel()
    assert (await edge.end(ticket)).result == "cancelled"


@pytest.mark.parametrize("key", ["short", "§", base64.b64encode(b"x" * 31).decode(), "A" * 101])
async def test_what_is_no_key_is_refused(edge: Edge, key: str) -> None:
    with pytest.raises(Refused, match="key"):
        await edge.user.do(edge.at("berlin"), "create", spec={"key": key})


@pytest.mark.usefixtures("_commands_find_the_server")
@pytest.mark.parametrize("send", [None, by_temporal, by_curl])
async def test_an_answer_by_hand_is_signed(
    edge: Edge, server: embedded.EmbeddedServer, send: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await guarded(edge)
    edge.set_faults(fault("silent"))
    path = edge.at("berlin", "good")
    ticket = await edge.begun(path, "create", spec={})
    capsys.readouterr()
    words = ["crm", "respond", path, "Ready", *([] if send is None else ["--dry-run"])]
    assert await run_command(words) == 0
    if send:
        message = json.loads(capsys.readouterr().out)
        assert message["errors"] == []  # which Temporal's HTTP API makes null of: the proof still fits
        await send(edge, path, message, server)
    assert (await edge.end(ticket)).status == "Ready"


@pytest.mark.usefixtures("_commands_find_the_server")
async def test_the_token_is_a_file_of_its_owner_and_only_its_key_is_printed(
    edge: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["crm", "token", "--cloudlet", f"{edge.user.ns}/berlin"]
    assert await run_command(words) == 0
    first = capsys.readouterr()
    assert await run_command(words) == 0
    assert capsys.readouterr().out == first.out
    assert await run_command([*words, "--new"]) == 0
    assert capsys.readouterr().out != first.out
    file = edge.token().file
    assert file.stat().st_mode & 0o777 == 0o600
    secret = "".join(file.read_text().splitlines()[1:-1])
    assert re.fullmatch(r"[A-Za-z0-9+/]{43}=\n", first.out)
    assert secret not in first.out + first.err
    file.chmod(0o644)
    assert await run_command(words) == 2
    assert "can be read by others" in capsys.readouterr().err
    file.write_text("nonsense")
    file.chmod(0o600)
    assert await run_command(words) == 2
    assert "is not a private key" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_openssl_makes_tokens_and_proofs_as_well(tmp_path: Path) -> None:
    """As the documentation shows it to those whose CRM is not the reference one."""
    token, said = CrmToken(tmp_path / "token"), tmp_path / "said"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", token.file], check=True)
    token.file.chmod(0o600)
    message = {"state": "Ready", "notify_id": 7, "epoch": 41, "errors": []}
    text = 'crm_response\norg:acme:cloudlet:berlin\n{"epoch":41,"notify_id":7,"state":"Ready"}'
    assert text_to_sign(messages.CRM_RESPONSE, "org:acme:cloudlet:berlin", message) == text
    said.write_text(text)
    sign = ["openssl", "pkeyutl", "-sign", "-inkey", str(token.file), "-rawin", "-in", str(said)]
    proof = base64.b64encode(subprocess.run(sign, check=True, capture_output=True).stdout).decode()
    assert why_unproven(token.public_key(), text, proof) == ""
    assert why_unproven(token.public_key(), text + " ", proof) == WRONG_PROOF_MESSAGE
    assert why_unproven("", text, "") == ""


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ({"a": 1, "errors": []}, {"errors": None, "a": 1.0}),
        ({"runtime": {"b": "", "a": {}}}, {}),
        ({"path": "x", "proof": "y", "s": "ü"}, {"s": "ü"}),
    ],
)
def test_a_message_is_the_same_however_it_travelled(one: Message, same: Message) -> None:
    assert text_to_sign("s", "p", one) == text_to_sign("s", "p", same)


def test_messages_that_differ_are_different() -> None:
    texts = {
        text_to_sign(signal, path, message)
        for signal in ("a", "b")
        for path in ("p", "q")
        for message in ({"s": 1}, {"s": "1"}, {"s": True}, {"s": [1]}, {"s": [[1]]}, {"t": 1})
    }
    assert len(texts) == 24
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert text_to_sign("s", "p", {"x": deep}).endswith("\n")
