"""Processes of this machine, which outlive the worker: known by pid and start time, or by a token.

Needs Linux: /proc, and pidfds, which tell the end of processes that are not our children.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

TOKEN_VARIABLE = "RATCHET_INSTANCE"  # noqa: S105  a name, not a secret


def has_pidfd() -> bool:
    """Tells whether processes can be known again on this machine."""
    return Path("/proc/self/stat").exists() and hasattr(os, "pidfd_open")


def read_start_ticks(pid: int) -> int:
    """Returns the start time of a process in kernel ticks; 0 if there is none, or only a zombie."""
    words = _read_stat_fields(pid)
    return int(words[19]) if words else 0


def _read_stat_fields(pid: int) -> list[str]:
    """Returns the fields of a process's stat from its state on; none of one that has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if words[0] in "ZX" else words


def is_alive(pid: int, started: int) -> bool:
    """Tells whether the process that began at this time runs; pids are used again."""
    return bool(pid) and bool(started) and read_start_ticks(pid) == started


def is_stopped(pid: int, started: int) -> bool:
    """Tells whether a process was stopped, as by Ctrl-Z or SIGSTOP: a slow or a traced one is not."""
    return is_alive(pid, started) and _read_stat_fields(pid)[:1] == ["T"]


def find_pid_by_token(token: str) -> int:
    """Returns the pid of the oldest process with this token in its environment, or 0.

    It leads a session, as we start it: its children, which inherit the token, are not the instance.
    """
    mark, found = f"{TOKEN_VARIABLE}={token}".encode(), []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    words = _read_stat_fields(int(folder.name))
                    if words and words[3] == folder.name:
                        found.append((int(words[19]), int(folder.name)))
    return min(found)[1] if found else 0


async def wait_for_exit(pid: int, started: int) -> None:
    """Waits until the process has ended."""
    if not is_alive(pid, started):
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def reap_child(pid: int) -> int | None:
    """Returns the exit code of a child that has ended; None for other processes."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None


def describe_exit(what: str, code: int | None) -> str:
    """Returns how a process ended, as text."""
    if code is None:
        return f"{what} is gone"
    if code < 0:
        return f"{what} was ended by {signal.Signals(-code).name}"
    return f"{what} ended with exit code {code}"
