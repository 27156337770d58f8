"""The files by which commands of one home folder find what runs there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

EMBEDDED_FILE = "embedded.json"  # the Temporal server of `starter up`, while it runs
TEMPORAL_DATA_FILE = "temporal.db"  # what that server stores
GATEWAY_FILE = "gateway.json"  # its gateway
LOGIN_FILE = "login.json"  # the session of `starter login`


def read_embedded_options(home: Path) -> dict[str, Any]:
    """Returns the address and Web UI that the embedded server wrote to its file; empty if there is none."""
    try:
        document: dict[str, Any] = json.loads((home / EMBEDDED_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return document


def write_private_file(file: Path, text: str) -> Path:
    """Writes a file that only its owner may read; whoever reads it meanwhile gets the old one or the new one."""
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    return beside.replace(file)
