"""One stack per data folder, by a file lock that the operating system releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from client.connection import EMBEDDED_FILE, read_embedded_options
from domain.errors import Category, Refused

LOCK_FILE = "up.lock"


@contextmanager
def lock_data_folder(home: Path) -> Iterator[None]:
    """Locks the folder, or refuses and names the holder. First ends a server that a dead holder left behind."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / LOCK_FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _folder_taken(home) from error
        _end_orphaned_server(home)
        yield


def is_folder_in_use(home: Path) -> bool:
    """Tells whether a stack runs in the folder."""
    try:
        with (home / LOCK_FILE).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no such folder yet
        return False
    return False


def _folder_taken(home: Path) -> Refused:
    facts = read_embedded_options(home)
    where = f" at {facts['address']}, process {facts['owner']}" if facts else ""
    return Refused(
        Category.CONFLICT,
        f"a stack is running in {home} already{where}",
        "use it as it is, stop it with Ctrl-C in its terminal, or set RATCHET_HOME to another folder",
    )


def _end_orphaned_server(home: Path) -> None:
    """Ends a server left by a dead holder: two servers would corrupt the database file."""
    pid = read_embedded_options(home).get("pid")
    if isinstance(pid, int) and _is_temporal_server(pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # its database survives SIGKILL, and SIGTERM takes long
    (home / EMBEDDED_FILE).unlink(missing_ok=True)


def _is_temporal_server(pid: int) -> bool:
    """Tells whether the pid is a Temporal server, as pids are reused; False where /proc is missing."""
    try:
        return b"start-dev" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
