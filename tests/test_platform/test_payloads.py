"""Payloads are encrypted if there are keys, and never larger than Temporal accepts."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from client.actions import ActionClient
from client.codec import CodecServer, serve_in_threads
from client.payloads import (
    ENCRYPTED_ENCODING,
    EncryptionCodec,
    EncryptionKeys,
    UnreadablePayload,
    data_converter,
    load_keys,
    tolerant_converter,
)
from client.queries import PAGE_SIZE
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


async def test_what_was_never_sealed_is_left_as_it_is() -> None:
    assert await codec("a", a=OLD).decode([SAID]) == [SAID]


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


@pytest.fixture
def endpoint() -> Iterator[CodecServer]:
    server = CodecServer(0, codec("a", a=OLD), ["http://ui.example:8233"])
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
    status, answer, readers = post(f"{endpoint.url}/decode", asked, Origin="http://ui.example:8233")
    assert (status, readers) == (200, "http://ui.example:8233")
    assert base64.b64decode(json.loads(answer)["payloads"][0]["data"]) == b'"hunter2"'
    assert post(f"{endpoint.url}/decode", asked, Origin="http://evil.example") == (403, "", "")
    assert post(f"{endpoint.url}/decode", asked, Host="evil.example") == (403, "", "")
    assert post(f"{endpoint.url}/else", asked)[0] == 404
    assert post(f"{endpoint.url}/decode", b"{")[0] == 400


async def test_a_payload_of_another_key_is_told_and_what_is_encoded_comes_back(endpoint: CodecServer) -> None:
    [foreign] = await codec("b", b=NEW).encode([SAID])
    status, answer, _ = post(f"{endpoint.url}/decode", await body(foreign))
    assert (status, "encrypted with the key 'b'" in answer) == (400, True)
    status, answer, _ = post(f"{endpoint.url}/encode", await body(SAID))
    assert (status, "hunter2" in answer) == (200, False)
    assert base64.b64decode(json.loads(post(f"{endpoint.url}/decode", answer.encode())[1])["payloads"][0]["data"])


def test_a_port_that_is_taken_is_told(endpoint: CodecServer) -> None:
    with pytest.raises(Refused, match="Address already in use") as caught:
        CodecServer(endpoint.server_port, codec("a", a=OLD), [])
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
