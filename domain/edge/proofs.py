"""What a CRM signs: one text for each message, the same for every transport.

The cloudlet stores the public half of its CRM's token, and a signature proves that the sender has the private half. So
nothing that we store, log or send can be used to impersonate a CRM. Signing and checking are done elsewhere.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

KEY_BYTES = 32
PROOF_FIELD = "proof"

_UNSIGNED_FIELDS = ("path", PROOF_FIELD)  # the path is in the first lines of the text; a proof does not sign itself


def text_to_sign(signal: str, path: str, message: Mapping[str, Any]) -> str:
    """Returns the text that is signed: the signal, the object's path, and the message as canonical JSON."""
    rest = {key: value for key, value in message.items() if key not in _UNSIGNED_FIELDS}
    try:
        text = json.dumps(_without_empty_values(rest), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:  # no real message is nested so deeply
        text = ""
    return f"{signal}\n{path}\n{text}"


def _without_empty_values(value: Any) -> Any:
    """Drops empty values: Temporal's HTTP API turns an empty list into null, and 2.0 into 2."""
    if isinstance(value, Mapping):
        fields = {str(key): _without_empty_values(item) for key, item in value.items()}
        return {key: item for key, item in fields.items() if item is not None and item not in ("", [], {})}
    if isinstance(value, list | tuple):
        return [_without_empty_values(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def decode_key(text: str) -> bytes:
    """Returns a key or proof as bytes; empty if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
