"""The data folder: only its owner may use it, and one stack at a time, by a lock that ends with its holder."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from client.homefiles import EMBEDDED_FILE, read_embedded_options
from domain.errors import Category, Refused

LOCK_FILE = "up.lock"
PR_SET_DUMPABLE = 4
FOLDER_BITS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH  # passing through shows nobody anything
FILE_BITS = stat.S_IRWXG | stat.S_IRWXO


def harden_process() -> None:
    """Keeps others out: new files are their owner's only, and no process may read this one's memory or environment."""
    os.umask(0o077)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def secure_data_folder(home: Path) -> None:
    """Makes the folder for its owner only. Refuses one that others may read: keys and databases are in it."""
    os.umask(0o077)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_data_folder(home)


def check_data_folder(home: Path) -> None:
    """Refuses a folder that others may use, or in which something belongs to another user."""
    for path in (home, *home.iterdir()):
        try:
            facts = path.lstat()
        except FileNotFoundError:  # removed meanwhile
            continue
        if stat.S_ISLNK(facts.st_mode) or stat.S_ISSOCK(facts.st_mode):
            continue
        if facts.st_mode & (FOLDER_BITS if stat.S_ISDIR(facts.st_mode) else FILE_BITS):
            mode = f"{stat.S_IMODE(facts.st_mode):04o}"
            raise Refused(
                Category.INVALID,
                f"others may use {path}, which has mode {mode}",
                f"close it: chmod -R go-rwx {home}",
            )
        if facts.st_uid not in (0, os.geteuid()):
            raise Refused(
                Category.INVALID, f"{path} belongs to another user", "set RATCHET_HOME to a folder of your own"
            )


@contextmanager
def lock_data_folder(home: Path) -> Iterator[None]:
    """Locks the folder, or refuses and names the holder. First ends a server that a dead holder left behind."""
    secure_data_folder(home)
    with (home / LOCK_FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            facts = read_embedded_options(home)
            where = f" at {facts['address']}, process {facts['owner']}" if facts else ""
            raise Refused(
                Category.CONFLICT,
                f"a stack is running in {home} already{where}",
                "use it as it is, stop it with Ctrl-C in its terminal, or set RATCHET_HOME to another folder",
            ) from error
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
