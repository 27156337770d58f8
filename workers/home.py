"""One stack per data folder: a lock that the system itself releases when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from client.connection import EMBEDDED_FILE, embedded
from domain.errors import Category, Refused

LOCK_FILE = "up.lock"


@contextmanager
def hold_folder(home: Path) -> Iterator[None]:
    """Hold the folder, or Refused naming who does. A server that a dead holder left behind is ended first."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / LOCK_FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _taken(home) from error
        _end_orphan(home)
        yield


def in_use(home: Path) -> bool:
    """Does somebody run a stack there?"""
    try:
        with (home / LOCK_FILE).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no such folder yet
        return False
    return False


def _taken(home: Path) -> Refused:
    facts = embedded(home)
    where = f" at {facts['address']}, process {facts['owner']}" if facts else ""
    return Refused(
        Category.CONFLICT,
        f"a stack is running in {home} already{where}",
        "use it as it is, stop it with Ctrl-C in its terminal, or set RATCHET_HOME to another folder",
    )


def _end_orphan(home: Path) -> None:
    """Two servers on one database file would ruin it."""
    pid = embedded(home).get("pid")
    if isinstance(pid, int) and _is_server(pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # its database survives that, and it does not answer SIGTERM at once
    (home / EMBEDDED_FILE).unlink(missing_ok=True)


def _is_server(pid: int) -> bool:
    """Numbers of processes are used again: look before ending one. Where that cannot be seen, leave it alone."""
    try:
        return b"start-dev" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
