"""Payloads are encrypted if there are keys, and never larger than Temporal accepts."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.json_format import Parse
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import ActivitySerializationContext, DataConverter, WorkflowSerializationContext
from temporalio.exceptions import ApplicationError

from client.actions import ActionClient
from client.codec import CodecServer, load_codec_token, serve_in_threads
from client.encryption import (
    ENCRYPTED_ENCODING,
    EncryptionCodec,
    EncryptionKeys,
    PayloadSeal,
    RefusedPayload,
    UnreadablePayload,
    load_keys,
    seal_of_context,
)
from client.payloads import data_converter, tolerant_converter
from client.reading import PAGE_SIZE
from domain import wire
from domain.errors import Refused
from domain.limits import MAX_PAYLOAD_BYTES
from store.schema import objects
from tests.patience import PATIENCE
from tests.user import User
from workers.settings import WorkerSettings

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (7, 11))


def write(file: Path, active: str, **keys: str) -> str:
    file.write_text(json.dumps({"active": active, "keys": keys}))
    file.chmod(0o600)
    return str(file)


def codec(active: str, **keys: str) -> EncryptionCodec:
    return EncryptionCodec(EncryptionKeys.model_validate({"active": active, "keys": keys}))


SAID = Payload(metadata={"encoding": b"json/plain"}, data=b'"hunter2"')


async def test_what_was_sealed_can_be_opened_again_and_read_by_nobody_else() -> None:
    [sealed] = await codec("a", a=OLD).encode([SAID])
    assert sealed.metadata["encoding"] == ENCRYPTED_ENCODING
    assert b"hunter2" not in sealed.SerializeToString()
    assert await codec("a", a=OLD).decode([sealed]) == [SAID]
    assert (await codec("a", a=OLD).encode([SAID]))[0] != sealed, "a nonce is never used twice"


async def test_after_a_rotation_the_old_key_still_opens_and_only_the_new_one_seals() -> None:
    [old] = await codec("a", a=OLD).encode([SAID])
    both = codec("b", a=OLD, b=NEW)
    [new] = await both.encode([SAID])
    assert await both.decode([old, new]) == [SAID, SAID]
    assert new.metadata["encryption-key-id"] == b"b"
    with pytest.raises(UnreadablePayload, match="encrypted with the key 'a', which RATCHET_KEYS_FILE does not have"):
        await codec("b", b=NEW).decode([old])


async def test_plaintext_is_refused_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RefusedPayload, match="plaintext is refused: with RATCHET_KEYS_FILE, send it by `starter`"):
        await codec("a", a=OLD).decode([SAID])
    keys = write(tmp_path / "keys", "a", a=OLD)
    worker = tolerant_converter(data_converter(WorkerSettings(home=tmp_path, keys_file=keys)))
    [told] = await worker.decode([SAID], [Any])
    assert (type(told), "plaintext is refused" in told) == (wire.UnreadableMessage, True)
    with pytest.raises(ApplicationError, match="plaintext is refused") as caught:
        await worker.decode([SAID], [str])
    assert (caught.value.type, caught.value.non_retryable) == (wire.REFUSED_PAYLOAD_ERROR_TYPE, True)
    [marked] = await worker.payload_codec.decode([SAID]) if worker.payload_codec else []
    assert b"hunter2" not in marked.SerializeToString(), "whoever forgets to look finds nothing to read"


WEB, SHOP = PayloadSeal("default", "workflow", "ns:web"), PayloadSeal("default", "workflow", "ns:shop")
BEGIN = PayloadSeal("default", "activity begin", "ns:web")
ELSEWHERE: dict[str, tuple[PayloadSeal, PayloadSeal]] = {
    "workflow": (WEB, SHOP),
    "namespace": (WEB, replace(WEB, namespace="other")),
    "activity's name": (BEGIN, replace(BEGIN, field="activity finish")),
    "activity's workflow": (BEGIN, replace(BEGIN, owner="ns:shop")),
    "from activity to workflow": (BEGIN, WEB),
    "from workflow to activity": (WEB, BEGIN),
    "call": (PayloadSeal("default", "call", "read-1"), PayloadSeal("default", "call", "read-2")),
    "schedule's memo": (PayloadSeal("default", "schedule"), WEB),
    "outside to activity": (PayloadSeal("default", "outside"), BEGIN),
    "outside to schedule": (PayloadSeal("default", "outside"), PayloadSeal("default", "schedule")),
    "outside of another namespace": (PayloadSeal("other", "outside"), WEB),
    "another schedule's run": (WEB, PayloadSeal("default", "workflow", "ns:shop-2026-11-16T10:20:00Z")),
}


@pytest.mark.parametrize("case", ELSEWHERE)
async def test_a_payload_is_good_only_where_it_belongs(case: str) -> None:
    ours, (there, here) = codec("a", a=OLD), ELSEWHERE[case]
    [sealed] = await ours.with_seal(there).encode([SAID])
    assert await ours.with_seal(there).decode([sealed]) == [SAID]
    with pytest.raises(RefusedPayload, match="it belongs to"):
        await ours.with_seal(here).decode([sealed])
    sealed.metadata["sealed-to"] = str(here).encode()  # whoever writes another place on it needs the key
    with pytest.raises(UnreadablePayload, match="does not fit"):
        await ours.with_seal(here).decode([sealed])


@pytest.mark.parametrize("found", [PayloadSeal("default", "outside"), WEB])
async def test_what_a_person_typed_and_what_a_schedule_starts_is_taken(found: PayloadSeal) -> None:
    [sealed] = await codec("a", a=OLD).with_seal(found).encode([SAID])
    started = PayloadSeal("default", "workflow", "ns:web-2026-11-16T10:20:00Z")
    assert await codec("a", a=OLD).with_seal(started).decode([sealed]) == [SAID]


async def test_a_payload_without_a_place_is_refused() -> None:
    [sealed] = await codec("a", a=OLD).encode([SAID])
    for text in (b"", b"default", b"\xff\n", b"default\nworkflow"):
        sealed.metadata["sealed-to"] = text
        with pytest.raises(RefusedPayload, match="does not say to which workflow"):
            await codec("a", a=OLD).decode([sealed])


def test_the_places_are_those_that_temporals_sdk_tells() -> None:
    def activity(workflow_id: str | None) -> ActivitySerializationContext:
        return ActivitySerializationContext("n", "7", "begin", "actions", workflow_id, "W", is_local=True)

    assert seal_of_context(WorkflowSerializationContext("n", "w")) == PayloadSeal("n", "workflow", "w")
    assert seal_of_context(activity("w")) == PayloadSeal("n", "activity begin", "w")
    assert seal_of_context(activity(None)) == seal_of_context(activity("")) == PayloadSeal("n", "call", "7")


@pytest.mark.parametrize("part", ["key", "text", "name"])
async def test_a_wrong_key_and_a_changed_text_are_noticed(part: str) -> None:
    [sealed] = await codec("a", a=OLD, b=OLD).encode([SAID])
    reader = codec("a", a=NEW if part == "key" else OLD, b=OLD)
    if part == "text":
        sealed.data = sealed.data[:-1] + bytes([sealed.data[-1] ^ 1])
    if part == "name":  # the same key under another name: the name is sealed too
        sealed.metadata["encryption-key-id"] = b"b"
    with pytest.raises(UnreadablePayload, match="does not fit"):
        await reader.decode([sealed])


async def test_without_keys_an_encrypted_value_says_that_it_is_encrypted(tmp_path: Path) -> None:
    sealing = data_converter(WorkerSettings(home=tmp_path, keys_file=write(tmp_path / "keys", "a", a=OLD)))
    sealed = await sealing.encode(["hunter2"])
    assert await sealing.decode(sealed) == ["hunter2"]
    with pytest.raises(UnreadablePayload, match="it is encrypted, and RATCHET_KEYS_FILE is not set here"):
        await data_converter(WorkerSettings(home=tmp_path)).decode(sealed)


async def test_a_worker_is_told_what_it_cannot_decrypt_only_where_anything_is_taken(tmp_path: Path) -> None:
    def of(name: str, **keys: str) -> DataConverter:
        return data_converter(WorkerSettings(home=tmp_path, keys_file=write(tmp_path / name, name, **keys)))

    [foreign], [ours] = await of("a", a=OLD).encode(["hunter2"]), await of("b", b=NEW).encode(["hunter3"])
    worker = tolerant_converter(of("b", b=NEW))
    assert await worker.decode([ours], [Any]) == ["hunter3"]
    [told] = await worker.decode([foreign], [Any])
    assert (type(told), "encrypted with the key 'a'" in told) == (wire.UnreadableMessage, True)
    for hints in (None, list[type]([str]), list[type]([dict])):
        with pytest.raises(UnreadablePayload, match="encrypted with the key 'a', which RATCHET_KEYS_FILE does not"):
            await worker.decode([foreign], hints)
    [untold] = await tolerant_converter(data_converter(WorkerSettings(home=tmp_path))).decode([foreign], [Any])
    assert untold == "it is encrypted, and RATCHET_KEYS_FILE is not set here"


async def test_the_texts_of_failures_are_sealed_too(tmp_path: Path) -> None:
    from temporalio.api.failure.v1 import Failure

    sealing = data_converter(WorkerSettings(home=tmp_path, keys_file=write(tmp_path / "keys", "a", a=OLD)))
    failure = Failure()
    await sealing.encode_failure(ApplicationError("the password is hunter2", "hunter2"), failure)
    assert b"hunter2" not in failure.SerializeToString()
    assert "hunter2" in str(await sealing.decode_failure(failure))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "active: Field required"),
        ("active: [", "is not YAML"),
        (f"{{active: b, keys: {{a: {OLD}}}}}", "the active key 'b' is not among the keys"),
        ("{active: a, keys: {a: aHVudGVyMg==}}", "key 'a' must be 32 bytes in base64"),
        ("{active: a, keys: {a: '!hunter2'}}", "key 'a' must be 32 bytes in base64"),
        (f"{{active: a, keys: {{a: {OLD}}}, more: hunter2}}", "more: there is no such field"),
    ],
)
def test_a_keys_file_that_is_wrong_is_refused_and_nothing_of_it_is_shown(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(Refused) as caught:
        load_keys(str(file))
    told = f"{caught.value.message} {caught.value.hint}"
    assert words in told
    assert not [secret for secret in ("hunter2", "aHVudGVyMg", OLD) if secret in told]


def test_a_keys_file_that_others_can_read_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = Path(write(tmp_path / "keys.yaml", "a", a=OLD))
    file.chmod(0o640)
    with pytest.raises(Refused, match="can be read by others") as caught:
        load_keys(str(file))
    assert caught.value.hint == f"chmod 600 {file}"
    with pytest.raises(Refused, match="cannot be read: No such file"):
        load_keys(str(tmp_path / "nothing"))


TOKEN = "a-token-of-the-codec-endpoint"


@pytest.fixture
def endpoint() -> Iterator[CodecServer]:
    server = CodecServer(0, codec("a", a=OLD), ["http://ui.example:8233"], TOKEN)
    with serve_in_threads(server):
        yield server


def post(url: str, body: bytes, **headers: str) -> tuple[int, str, str]:
    """Status, body, and who may read it."""
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode(), answer.headers.get("access-control-allow-origin", "")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers.get("access-control-allow-origin", "")


async def body(sealed: Payload) -> bytes:
    metadata = {name: base64.b64encode(value).decode() for name, value in sealed.metadata.items()}
    return json.dumps({"payloads": [{"metadata": metadata, "data": base64.b64encode(sealed.data).decode()}]}).encode()


async def test_the_web_ui_gets_its_payloads_decrypted_and_no_other_page_does(endpoint: CodecServer) -> None:
    [sealed] = await codec("a", a=OLD).encode([SAID])
    asked = await body(sealed)
    status, answer, readers = post(f"{endpoint.url}/{TOKEN}/decode", asked, Origin="http://ui.example:8233")
    assert (status, readers) == (200, "http://ui.example:8233")
    assert base64.b64decode(json.loads(answer)["payloads"][0]["data"]) == b'"hunter2"'
    assert post(f"{endpoint.url}/{TOKEN}/decode", asked, Origin="http://evil.example") == (403, "", "")
    assert post(f"{endpoint.url}/{TOKEN}/decode", asked, Host="evil.example") == (403, "", "")
    assert post(f"{endpoint.url}/{TOKEN}/else", asked)[0] == 404
    assert post(f"{endpoint.url}/{TOKEN}/decode", b"{")[0] == 400


async def test_a_payload_of_another_key_is_told_and_what_is_encoded_comes_back(endpoint: CodecServer) -> None:
    [foreign] = await codec("b", b=NEW).encode([SAID])
    status, answer, _ = post(f"{endpoint.url}/{TOKEN}/decode", await body(foreign))
    assert (status, "encrypted with the key 'b'" in answer) == (400, True)
    status, answer, _ = post(f"{endpoint.url}/{TOKEN}/encode", await body(SAID))
    assert (status, "hunter2" in answer) == (200, False)
    assert base64.b64decode(
        json.loads(post(f"{endpoint.url}/{TOKEN}/decode", answer.encode())[1])["payloads"][0]["data"]
    )


async def test_the_codec_endpoint_wants_its_token(endpoint: CodecServer) -> None:
    asked = await body((await codec("a", a=OLD).encode([SAID]))[0])
    for headers in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Basic {TOKEN}"}):
        for path in ("decode", "encode", f"{TOKEN}x/decode", ""):
            status, answer, _ = post(f"{endpoint.url}/{path}", asked, **headers)
            assert (status, "hunter2" in answer, "token is missing or wrong" in answer) == (401, False, True)
    assert post(f"{endpoint.url}/decode", asked, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert post(f"{endpoint.url}/{TOKEN}/decode", asked)[0] == 200


@pytest.mark.parametrize(
    ("path", "seal"),
    [("encode", PayloadSeal("default", "outside")), ("workflow/ns%3Aweb/encode", WEB), ("workflow/ns:web/encode", WEB)],
)
async def test_what_is_encoded_belongs_to_the_workflow_that_the_address_names(
    endpoint: CodecServer, path: str, seal: PayloadSeal
) -> None:
    status, answer, _ = post(f"{endpoint.url}/{TOKEN}/{path}", await body(SAID))
    [sealed] = Parse(answer, Payloads()).payloads
    assert (status, sealed.metadata["sealed-to"]) == (200, str(seal).encode())
    assert await codec("a", a=OLD).with_seal(WEB).decode([sealed]) == [SAID]


async def test_the_endpoint_decrypts_for_its_own_namespace_only(endpoint: CodecServer) -> None:
    [other] = await codec("a", a=OLD).with_seal(replace(WEB, namespace="other")).encode([SAID])
    status, answer, _ = post(f"{endpoint.url}/{TOKEN}/decode", await body(other))
    assert (status, answer) == (400, "it belongs to namespace other, not to default")


def test_a_token_file_is_short_or_open_or_good(tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert len({load_codec_token(None), load_codec_token(None)}) == 2, "each start makes a new one"
    with pytest.raises(Refused, match="cannot be read"):
        load_codec_token(file)
    file.write_text("short")
    file.chmod(0o600)
    with pytest.raises(Refused, match="must be 24 to 200"):
        load_codec_token(file)
    file.write_text(f"{TOKEN}\n")
    assert load_codec_token(file) == TOKEN
    file.chmod(0o644)
    with pytest.raises(Refused, match="can be read by others"):
        load_codec_token(file)


def test_a_port_that_is_taken_is_told(endpoint: CodecServer) -> None:
    with pytest.raises(Refused, match="Address already in use") as caught:
        CodecServer(endpoint.server_port, codec("a", a=OLD), [], TOKEN)
    assert "--port" in caught.value.hint


@pytest.fixture
def bounded(tmp_path: Path) -> DataConverter:
    return data_converter(WorkerSettings(home=tmp_path))


async def test_what_temporal_would_not_take_is_refused_by_name(bounded: DataConverter) -> None:
    with pytest.raises(ApplicationError, match="bytes are too many: Temporal takes 2,000,000") as caught:
        await bounded.encode(["x" * MAX_PAYLOAD_BYTES])
    assert (caught.value.type, caught.value.non_retryable) == (wire.TOO_LARGE_ERROR_TYPE, True)
    assert await bounded.encode(["x" * (MAX_PAYLOAD_BYTES - 2)])


async def test_a_long_list_of_large_objects_comes_in_smaller_pages(user: User, asking: ActionClient) -> None:
    large = {"description": "x" * 60_000}
    facts: dict[str, Any] = {"kind": "mci", "parent": f"ns:{user.ns}", "placement": "", "status": "Running", "epoch": 1}
    facts |= {"previous_status": "None", "target_action": "None", "target_status": "None", "error": "", "info": {}}
    facts |= {"created_at": datetime.now(UTC), "changed_at": datetime.now(UTC), "spec": large}
    rows = [facts | {"path": user.mci(f"large-{n:03}")} for n in range(70)]  # over 4 MB, and fewer than a page
    assert len(rows) < PAGE_SIZE
    await user.service.database.run_transaction(
        lambda connection: connection.execute(sa.insert(objects), rows).rowcount
    )
    found = [view.path async for view in asking.iterate_objects("mci", f"ns:{user.ns}")]
    assert found == [row["path"] for row in rows]
    gone = sa.delete(objects).where(objects.c.parent == f"ns:{user.ns}")
    await user.service.database.run_transaction(lambda connection: connection.execute(gone).rowcount)
