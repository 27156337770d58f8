"""The data converter: values travel through Temporal as JSON of bounded size, encrypted with RATCHET_KEYS_FILE.

Encrypted are inputs, results, signals, updates, memos, heartbeats, summaries, and the texts of failures. Not encrypted,
because Temporal itself works with them: workflow IDs (the objects' paths), queues, types, search attributes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import CompositePayloadConverter, DataConverter, DefaultFailureConverterWithEncodedAttributes
from temporalio.exceptions import ApplicationError

from client.encryption import (
    ACTIVITY_METADATA,
    ENCRYPTED_ENCODING,
    REFUSED_METADATA,
    UNREADABLE_ENCODING,
    UNREADABLE_METADATA,
    EncryptionCodec,
    TolerantCodec,
    UnreadablePayload,
    bind_to_namespace,
    load_keys,
)
from client.settings import ClientSettings
from domain import wire
from domain.limits import MAX_PAYLOAD_BYTES
from domain.message import SignedMessage
from domain.validation import describe_validation_errors

_ENCODERS = tuple(PydanticPayloadConverter().converters.values())


class BoundedConverter(CompositePayloadConverter):
    """Refuses payloads over Temporal's limit before they are sent: a result that is too large hangs its workflow.

    The SDK makes several for each workflow. All of them share their encoders, which keep the models' type adapters.
    """

    def __init__(self) -> None:
        super().__init__(*_ENCODERS)

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
        """Decodes payloads. One that cannot be decrypted raises, or is an UnreadableMessage if no type is declared.

        An input or a result that is refused fails its workflow; one whose key is missing waits for the key.
        """
        unread = next((payload for payload in payloads if _is_unreadable(payload)), None)
        if unread is None:
            try:
                return super().from_payloads(payloads, type_hints)
            except ValidationError as error:
                if type_hints and isinstance(type_hints[0], type) and issubclass(type_hints[0], SignedMessage):
                    raise _unfit_message_error(error, type_hints[0]) from None
                raise
        why = unread.metadata.get(UNREADABLE_METADATA, b"it is encrypted, and RATCHET_KEYS_FILE is not set here")
        if type_hints == [Any]:
            return [wire.UnreadableMessage(why.decode())]
        if type_hints and ACTIVITY_METADATA in unread.metadata and _is_read_by_activity():
            return [wire.UnreadableMessage(why.decode())] * len(payloads)  # an error would be retried; see PayloadGuard
        if REFUSED_METADATA in unread.metadata:
            raise ApplicationError(why.decode(), type=wire.REFUSED_PAYLOAD_ERROR_TYPE, non_retryable=True)
        raise UnreadablePayload(why.decode())


def _is_read_by_activity() -> bool:
    """Tells arguments, which a worker reads in its event loop, from a result, which a workflow reads without one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return not workflow.in_workflow()


def _unfit_message_error(error: ValidationError, model: type[SignedMessage]) -> ApplicationError:
    """Returns the error that fails a workflow with input of another shape: Temporal's UI and CLI show its message."""
    told = f"the data is not valid: {describe_validation_errors(error, 'data', model)}; see docs/temporal.md"
    return ApplicationError(told, type=wire.UNFIT_ERROR_TYPE, non_retryable=True)


def _is_unreadable(payload: Payload) -> bool:
    return payload.metadata.get("encoding") in (ENCRYPTED_ENCODING, UNREADABLE_ENCODING)


def data_converter(settings: ClientSettings) -> DataConverter:
    """Returns the data converter of clients and workers. A client's is sealed to its namespace."""
    bounded = replace(pydantic_data_converter, payload_converter_class=BoundedConverter)
    if not settings.keys_file:
        return bounded
    return replace(
        bounded,
        payload_codec=EncryptionCodec(load_keys(settings.keys_file)),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def tolerant_converter(payloads: DataConverter) -> DataConverter:
    """Returns the converter for workers, which reports what it cannot decrypt to the reader of the value."""
    codec = payloads.payload_codec
    return replace(payloads, payload_codec=TolerantCodec(codec)) if isinstance(codec, EncryptionCodec) else payloads


def seal_to_namespace(converter: DataConverter, namespace: str) -> DataConverter:
    """Returns the converter of a client of this namespace."""
    return replace(converter, payload_codec=bind_to_namespace(converter.payload_codec, namespace))
