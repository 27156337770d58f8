"""Reads the ends of the logs that instances of the process backend write, one file per instance."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from domain.services.ports import InstanceLog

LINE_BYTES = 500  # a longer line is cut; this also bounds how much of a file is read


def read_logs(folder: Path, path: str, lines: int) -> list[InstanceLog]:
    """Returns the last lines of each instance's log; the instance that wrote last comes last."""
    files: list[tuple[float, int, Path]] = []
    with suppress(OSError):
        for file in folder.glob("*.log"):
            if file.stem.isdecimal() and int(file.stem):  # 0 is the proxy's
                files.append((file.stat().st_mtime, int(file.stem), file))
    return [InstanceLog(path=path, number=number, lines=_last_lines(file, lines)) for _, number, file in sorted(files)]


def redact_values(found: list[InstanceLog], values: Collection[str]) -> list[InstanceLog]:
    """Returns the logs without these values: a service may print a secret that it was given."""
    secrets = sorted(filter(None, values), key=len, reverse=True)
    if not secrets:
        return found
    pattern = re.compile("|".join(map(re.escape, secrets)))
    return [log.model_copy(update={"lines": [pattern.sub("***", line) for line in log.lines]}) for log in found]


def _last_lines(file: Path, lines: int) -> list[str]:
    try:
        with file.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - lines * LINE_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line[:LINE_BYTES] for line in text.splitlines() if line.strip()][-lines:]
