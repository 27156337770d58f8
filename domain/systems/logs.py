"""What may be shown of the lines that services write: bounded, and without the secrets in their environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from domain.services.ports import InstanceLog

SHOWN_IN_ERROR = 3  # lines of a service in the error of its deploy
ERROR_TEXT = 240  # their characters
MASK = "***"
_SECRET_NAME = re.compile(r"PASS|SECRET|TOKEN|KEY|CREDENTIAL|AUTH|DSN|URL", re.IGNORECASE)


def mask_secrets(log: InstanceLog, spec: Mapping[str, Any]) -> InstanceLog:
    """Returns the log without the values of variables that sound like secrets; a URL may have a password in it."""
    values = [value for name, value in spec.get("environment", {}).items() if _SECRET_NAME.search(name) and value]
    lines = log.lines
    for value in sorted(values, key=len, reverse=True):
        lines = [line.replace(value, MASK) for line in lines]
    return log.model_copy(update={"lines": lines})


def describe_last_lines(logs: Sequence[InstanceLog]) -> str:
    """Returns the last lines of the instance that wrote last, for an error; their end matters most."""
    lines = [line.strip() for line in logs[-1].lines[-SHOWN_IN_ERROR:]] if logs else []
    text = " / ".join(lines)
    return text if len(text) <= ERROR_TEXT else f"…{text[1 - ERROR_TEXT :]}"
