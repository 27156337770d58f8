"""Encryption of payloads with RATCHET_KEYS_FILE: the keys, and the codec that seals every payload to its place.

While keys are introduced (`plaintext_until` of the file), plaintext is still read; what is written is sealed.

A sealed payload names where it belongs (its *seal*): the namespace, and the workflow, activity or schedule. The name is
authenticated with the text, so a payload that is copied from one workflow into another is refused, as plaintext is.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, SecretBytes, StringConstraints, model_validator
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from domain.errors import Category, Refused

ENCRYPTED_ENCODING = b"binary/encrypted"
KEY_ID_METADATA = "encryption-key-id"
SEAL_METADATA = "sealed-to"
NONCE_BYTES = 12
KEY_BYTES = 32
FORMAT = b"ratchet-payload-1"
PLAINTEXT_HINT = "with RATCHET_KEYS_FILE, send it by `starter`, the gateway, or through the endpoint of `starter codec`"

KeyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
_SCHEDULED = re.compile(r"-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")  # what a schedule appends to its workflow's ID


class UnreadablePayload(ValueError):
    """A payload that this process cannot decrypt. It says why; a person has to correct the keys."""


class RefusedPayload(UnreadablePayload):
    """A payload that no key makes good: it is plaintext, was changed, or belongs elsewhere."""


class EncryptionKeys(BaseModel):
    """The keys file. The active key encrypts new payloads; the others only decrypt."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    active: KeyName
    keys: dict[KeyName, SecretBytes]
    plaintext_until: AwareDatetime | None = None  # while keys are introduced: until then plaintext is read

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


@dataclass(frozen=True)
class PayloadSeal:
    """Where a payload belongs. `field` is what Temporal's SDK tells of its use, `owner` the ID that it belongs to.

    | field | owner | what |
    | `workflow` | workflow ID | input, result, signals, updates, queries, memo and failures of a workflow |
    | `activity NAME` | workflow ID | arguments, result, heartbeats and failures of an activity that a workflow calls |
    | `call` | activity ID | the same of a standalone activity, whose name its caller's handle does not know |
    | `schedule` | none | the memo of a schedule: the SDK tells no more than the namespace |
    | `outside` | none | what a person typed, through the codec endpoint, which is told no workflow |
    """

    namespace: str
    field: str
    owner: str = ""

    def __str__(self) -> str:
        return "\n".join((self.namespace, self.field, self.owner))

    @staticmethod
    def parse(text: str) -> PayloadSeal:
        """Returns a seal from its text; raises RefusedPayload if it is none."""
        namespace, _, rest = text.partition("\n")
        field, separator, owner = rest.partition("\n")
        if not separator:
            raise RefusedPayload("it does not say to which workflow it belongs")
        return PayloadSeal(namespace, field, owner)

    def describe(self) -> str:
        return f"{self.field} {self.owner}".strip() + f" of namespace {self.namespace}"

    def accepts_seal(self, found: PayloadSeal) -> bool:
        """Tells whether a payload sealed to `found` may be used here."""
        if found == self:
            return True
        if found.namespace != self.namespace or self.field not in (WORKFLOW, CALL):
            return False
        by_schedule = self.field == found.field == WORKFLOW and _SCHEDULED.sub("", self.owner) == found.owner
        return found.field == OUTSIDE or by_schedule


WORKFLOW, ACTIVITY, CALL, SCHEDULE, OUTSIDE = "workflow", "activity", "call", "schedule", "outside"


def seal_of_context(context: SerializationContext) -> PayloadSeal | None:
    """Returns the seal for one of the SDK's contexts; None for one that says no namespace."""
    if isinstance(context, WorkflowSerializationContext):
        return PayloadSeal(context.namespace, WORKFLOW, context.workflow_id)
    if isinstance(context, ActivitySerializationContext):
        if context.workflow_id:
            return PayloadSeal(context.namespace, f"{ACTIVITY} {context.activity_type}", context.workflow_id)
        return PayloadSeal(context.namespace, CALL, context.activity_id or "")
    return None


class EncryptionCodec(PayloadCodec, WithSerializationContext):
    """The payload codec that encrypts by AES-256-GCM, with a new nonce for every payload, and checks seals.

    `seal` is what new payloads are sealed to. Without a context of the SDK that is the namespace alone.
    """

    def __init__(self, keys: EncryptionKeys, namespace: str = "default") -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._active = keys.active
        self._ciphers = {name: AESGCM(keys.key_bytes(name)) for name in keys.keys}
        self._plaintext_until = keys.plaintext_until
        self.seal = PayloadSeal(namespace, SCHEDULE)

    def with_seal(self, seal: PayloadSeal) -> EncryptionCodec:
        """Returns this codec for payloads of another place."""
        other = object.__new__(EncryptionCodec)
        other._active, other._ciphers, other.seal = self._active, self._ciphers, seal
        other._plaintext_until = self._plaintext_until
        return other

    def with_context(self, context: SerializationContext) -> EncryptionCodec:
        seal = seal_of_context(context)
        return self.with_seal(seal) if seal else self

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypts payloads. Plaintext, and what belongs elsewhere, raises RefusedPayload."""
        return [self._decrypt_here(payload) for payload in payloads]

    def decode_anywhere(self, payload: Payload) -> Payload:
        """Decrypts a payload of this namespace, wherever it belongs: for people who look at it, not for programs."""
        if self._may_be_plaintext(payload):
            return payload
        seal = _read_payload_seal(payload)
        if seal.namespace != self.seal.namespace:
            raise RefusedPayload(f"it belongs to namespace {seal.namespace}, not to {self.seal.namespace}")
        return self._decrypt(payload, seal)

    def _encrypt(self, payload: Payload) -> Payload:
        nonce, name, seal = os.urandom(NONCE_BYTES), self._active.encode(), str(self.seal).encode()
        data = nonce + self._ciphers[self._active].encrypt(
            nonce, payload.SerializeToString(), _authenticated_data(name, seal)
        )
        return Payload(metadata={"encoding": ENCRYPTED_ENCODING, KEY_ID_METADATA: name, SEAL_METADATA: seal}, data=data)

    def _decrypt_here(self, payload: Payload) -> Payload:
        if self._may_be_plaintext(payload):
            return payload
        seal = _read_payload_seal(payload)
        if not self.seal.accepts_seal(seal):
            raise RefusedPayload(f"it belongs to {seal.describe()}, not to {self.seal.describe()}")
        return self._decrypt(payload, seal)

    def _may_be_plaintext(self, payload: Payload) -> bool:
        """Tells whether a payload is plaintext at a time at which that is read."""
        in_transition = self._plaintext_until is not None and datetime.now(UTC) < self._plaintext_until
        return in_transition and not is_encrypted(payload)

    def _decrypt(self, payload: Payload, seal: PayloadSeal) -> Payload:
        from cryptography.exceptions import InvalidTag

        name = payload.metadata.get(KEY_ID_METADATA, b"").decode(errors="replace")
        if name not in self._ciphers:
            raise UnreadablePayload(
                f"it was encrypted with the key {name[:63]!r}, which RATCHET_KEYS_FILE does not have"
            )
        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            bound = _authenticated_data(name.encode(), str(seal).encode("utf-8", "surrogateescape"))
            return Payload.FromString(self._ciphers[name].decrypt(nonce, sealed, bound))
        except (InvalidTag, ValueError) as error:  # ValueError: too short
            raise UnreadablePayload(f"the key {name!r} does not fit; is RATCHET_KEYS_FILE the workers' own?") from error


def _authenticated_data(key: bytes, seal: bytes) -> bytes:
    """Returns the additional authenticated data. A key's name has no line break, so no two pairs are the same text."""
    return b"\n".join((FORMAT, key, seal))


def is_encrypted(payload: Payload) -> bool:
    """Tells whether a payload says that it is encrypted."""
    return payload.metadata.get("encoding") == ENCRYPTED_ENCODING


def _read_payload_seal(payload: Payload) -> PayloadSeal:
    if not is_encrypted(payload):
        raise RefusedPayload(f"it is not encrypted, and plaintext is refused: {PLAINTEXT_HINT}")
    return PayloadSeal.parse(payload.metadata.get(SEAL_METADATA, b"").decode("utf-8", "surrogateescape"))


UNREADABLE_ENCODING = b"binary/unreadable"  # of what a worker could not decrypt; it has no data, and is never sent
UNREADABLE_METADATA = "because"
REFUSED_METADATA = "refused"
ACTIVITY_METADATA = "of-activity"


class TolerantCodec(PayloadCodec, WithSerializationContext):
    """A codec for workers: what it cannot decrypt is replaced by the reason, which the reader of the value reports.

    An error here would fail the workflow task again and again: anybody who may send signals could stop an action.
    """

    def __init__(self, strict: EncryptionCodec) -> None:
        self.strict = strict

    def with_context(self, context: SerializationContext) -> TolerantCodec:
        return TolerantCodec(self.strict.with_context(context))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self.strict.encode(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [await self._decrypt_or_explain(payload) for payload in payloads]

    async def _decrypt_or_explain(self, payload: Payload) -> Payload:
        try:
            [opened] = await self.strict.decode([payload])
            return opened
        except UnreadablePayload as error:
            reason = {"encoding": UNREADABLE_ENCODING, UNREADABLE_METADATA: str(error).encode("utf-8", "replace")}
            if isinstance(error, RefusedPayload):
                reason[REFUSED_METADATA] = b"1"
            if self.strict.seal.field.partition(" ")[0] in (ACTIVITY, CALL):
                reason[ACTIVITY_METADATA] = b"1"
            return Payload(metadata=reason)


def bind_to_namespace(codec: PayloadCodec | None, namespace: str) -> PayloadCodec | None:
    """Returns a codec of ours for payloads of this namespace; any other as it is."""
    if isinstance(codec, TolerantCodec):
        return TolerantCodec(codec.strict.with_seal(replace(codec.strict.seal, namespace=namespace)))
    return codec.with_seal(replace(codec.seal, namespace=namespace)) if isinstance(codec, EncryptionCodec) else codec


KEYS_HINT = "write `active: NAME` and `keys: {NAME: KEY}`, each key from: openssl rand -base64 32"


def load_keys(name: str) -> EncryptionKeys:
    """Reads the keys file, or raises Refused, which says what is wrong and quotes nothing."""
    try:
        import cryptography  # noqa: F401  only whether it is there
    except ModuleNotFoundError as error:
        raise Refused(Category.INVALID, "encryption is not installed", "install the extra `encryption`") from error
    from client.documents import load_document  # it loads YAML

    file, what = Path(name), f"the keys file {name}"
    try:
        if file.stat().st_mode & 0o077:
            raise Refused(Category.INVALID, f"{what} can be read by others", f"chmod 600 {name}")
    except OSError as error:
        raise Refused(Category.INVALID, f"{what} cannot be read: {error.strerror}", KEYS_HINT) from error
    return load_document(EncryptionKeys, file, what, KEYS_HINT)
