"""The data converter: values travel through Temporal as JSON of bounded size, encrypted with RATCHET_KEYS_FILE.

Encrypted are inputs, results, signals, updates, memos, heartbeats, summaries, and the texts of failures. Not encrypted,
because Temporal itself works with them: workflow IDs (the objects' paths), queues, types, search attributes.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, SecretBytes, StringConstraints, model_validator
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec
from temporalio.exceptions import ApplicationError

from client.documents import UnreadableDocument, read_document
from client.settings import ClientSettings
from domain import wire
from domain.errors import Category, Refused
from domain.fields import refuse_invalid
from domain.limits import MAX_PAYLOAD_BYTES

ENCRYPTED_ENCODING = b"binary/encrypted"
KEY_ID_METADATA = "encryption-key-id"
UNREADABLE_METADATA = "unreadable-because"  # metadata of a payload that a worker could not decrypt; never sent
NONCE_BYTES = 12
KEY_BYTES = 32

KeyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class BoundedConverter(PydanticPayloadConverter):
    """Refuses payloads over Temporal's limit before they are sent: a result that is too large hangs its workflow."""

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        payloads = super().to_payloads(values)
        for payload in payloads:
            if len(payload.data) > MAX_PAYLOAD_BYTES:
                raise ApplicationError(
                    f"{len(payload.data):,} bytes are too many: Temporal takes {MAX_PAYLOAD_BYTES:,} at a time",
                    type=wire.TOO_LARGE_ERROR_TYPE,
                    non_retryable=True,
                )
        return payloads

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Decodes payloads. One that cannot be decrypted raises, or is an UnreadableMessage if no type is declared."""
        sealed = [payload for payload in payloads if payload.metadata.get("encoding") == ENCRYPTED_ENCODING]
        if not sealed:
            return super().from_payloads(payloads, type_hints)
        why = (
            sealed[0]
            .metadata.get(UNREADABLE_METADATA, b"it is encrypted, and RATCHET_KEYS_FILE is not set here")
            .decode()
        )
        if type_hints == [Any]:
            return [wire.UnreadableMessage(why)]
        raise UnreadablePayload(why)


class EncryptionKeys(BaseModel):
    """The keys file. The active key encrypts new payloads; the others only decrypt."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    active: KeyName
    keys: dict[KeyName, SecretBytes]

    @model_validator(mode="after")
    def _check_keys(self) -> EncryptionKeys:
        if self.active not in self.keys:
            raise ValueError(f"the active key {self.active!r} is not among the keys")
        for name in self.keys:
            if len(self.key_bytes(name)) != KEY_BYTES:
                raise ValueError(f"key {name!r} must be {KEY_BYTES} bytes in base64")
        return self

    def key_bytes(self, name: str) -> bytes:
        try:
            return base64.b64decode(self.keys[name].get_secret_value(), validate=True)
        except binascii.Error:
            return b""


class EncryptionCodec(PayloadCodec):
    """The payload codec that encrypts by AES-256-GCM, with a new nonce for every payload."""

    def __init__(self, keys: EncryptionKeys) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._active = keys.active
        self._ciphers = {name: AESGCM(keys.key_bytes(name)) for name in keys.keys}

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypts payloads. Plain ones pass: a workflow may be started by hand, or before there was a key."""
        return [
            self._decrypt(payload) if payload.metadata.get("encoding") == ENCRYPTED_ENCODING else payload
            for payload in payloads
        ]

    def _encrypt(self, payload: Payload) -> Payload:
        nonce, name = os.urandom(NONCE_BYTES), self._active.encode()
        data = nonce + self._ciphers[self._active].encrypt(nonce, payload.SerializeToString(), name)
        return Payload(metadata={"encoding": ENCRYPTED_ENCODING, KEY_ID_METADATA: name}, data=data)

    def _decrypt(self, payload: Payload) -> Payload:
        from cryptography.exceptions import InvalidTag

        name = payload.metadata.get(KEY_ID_METADATA, b"").decode(errors="replace")
        if name not in self._ciphers:
            raise UnreadablePayload(
                f"it was encrypted with the key {name[:63]!r}, which RATCHET_KEYS_FILE does not have"
            )
        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            return Payload.FromString(self._ciphers[name].decrypt(nonce, sealed, name.encode()))
        except (InvalidTag, ValueError) as error:  # ValueError: too short
            raise UnreadablePayload(f"the key {name!r} does not fit; is RATCHET_KEYS_FILE the workers' own?") from error


class TolerantCodec(PayloadCodec):
    """A codec for workers: it passes on what it cannot decrypt, and the reader of the value reports it.

    An error here would fail the workflow task again and again: anybody who may send signals could stop an action.
    """

    def __init__(self, strict: PayloadCodec) -> None:
        self._strict = strict

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._strict.encode(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [await self._decrypt_or_mark(payload) for payload in payloads]

    async def _decrypt_or_mark(self, payload: Payload) -> Payload:
        try:
            [opened] = await self._strict.decode([payload])
            return opened
        except UnreadablePayload as error:
            return Payload(metadata={**payload.metadata, UNREADABLE_METADATA: str(error).encode()}, data=payload.data)


class UnreadablePayload(ValueError):
    """A payload that this process cannot decrypt. It says why; a person has to correct the keys."""


def data_converter(settings: ClientSettings) -> DataConverter:
    """Returns the data converter of clients and workers."""
    bounded = replace(pydantic_data_converter, payload_converter_class=BoundedConverter)
    if not settings.keys_file:
        return bounded
    return replace(
        bounded,
        payload_codec=EncryptionCodec(load_keys(settings.keys_file)),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def tolerant_converter(payloads: DataConverter) -> DataConverter:
    """Returns the converter for workers, which passes on what it cannot decrypt."""
    codec = payloads.payload_codec
    return replace(payloads, payload_codec=TolerantCodec(codec)) if codec else payloads


KEYS_HINT = "write `active: NAME` and `keys: {NAME: KEY}`, each key from: openssl rand -base64 32"


def load_keys(name: str) -> EncryptionKeys:
    """Reads the keys file, or raises Refused, which says what is wrong and quotes nothing."""
    try:
        import cryptography  # noqa: F401  only whether it is there
    except ModuleNotFoundError as error:
        raise Refused(Category.INVALID, "encryption is not installed", "install the extra `encryption`") from error
    file = Path(name)
    try:
        if file.stat().st_mode & 0o077:
            raise _unusable_keys(name, "can be read by others", f"chmod 600 {name}")
        with refuse_invalid(f"the keys file {name} is not valid", KEYS_HINT):
            return EncryptionKeys.model_validate(read_document(file) or {})
    except OSError as error:
        raise _unusable_keys(name, f"cannot be read: {error.strerror}") from error
    except UnreadableDocument as error:
        raise _unusable_keys(name, str(error)) from error


def _unusable_keys(name: str, why: str, hint: str = "") -> Refused:
    return Refused(Category.INVALID, f"the keys file {name} {why}", hint or KEYS_HINT)
