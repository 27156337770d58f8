"""What a CRM signs: one text for each message, the same however the message has travelled.

The cloudlet keeps the public half of its CRM's token, and a signature proves that the sender has the other half. So
nothing that we keep, log or send can be used to speak in a CRM's name. Signing and checking are not done here.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

KEY_BYTES = 32
PROOF = "proof"

_ELSEWHERE = ("path", PROOF)  # said by the first lines of the text; the proof itself


def statement(signal: str, path: str, message: Mapping[str, Any]) -> str:
    """What is signed: the signal, the object's path, and the message as JSON in the one form that all agree on."""
    rest = {key: value for key, value in message.items() if key not in _ELSEWHERE}
    try:
        text = json.dumps(_plain(rest), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:  # nothing that a CRM would say is so deep
        text = ""
    return f"{signal}\n{path}\n{text}"


def _plain(value: Any) -> Any:
    """Without what is empty: Temporal's HTTP API makes null of an empty list, and 2 of 2.0."""
    if isinstance(value, Mapping):
        found = {str(key): _plain(each) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None and each not in ("", [], {})}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def key_bytes(text: str) -> bytes:
    """A key or proof as bytes; nothing if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
