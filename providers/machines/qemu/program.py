"""Runs QEMU's programs, whose answers are not trusted: what is there is looked at afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from domain.errors import NoCapacity, ProviderError, Rejected, Unavailable, format_one_line

_FULL = ("no space left", "disk quota exceeded", "cannot allocate memory", "too many open files", "cannot set up guest")


async def run_program(*words: str, cwd: Path | None = None, descriptors: Sequence[int] = ()) -> str:
    """Runs a program to its end, and returns its complaints. It is given these descriptors."""
    return (await _run_to_end(words, cwd, asyncio.subprocess.DEVNULL, descriptors))[1]


async def read_program(*words: str) -> tuple[str, str]:
    """Runs a program to its end. Returns what it says, and its complaints."""
    return await _run_to_end(words, None, asyncio.subprocess.PIPE)


async def _run_to_end(
    words: Sequence[str], cwd: Path | None, stdout: int, descriptors: Sequence[int] = ()
) -> tuple[str, str]:
    """Runs a program. Ends it if the caller gives up, so that none piles up."""
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        pass_fds=descriptors,
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    said = format_one_line(errors.decode(errors="replace"))
    complaint = said or (f"it ended with exit code {process.returncode}" if process.returncode else "")
    return (output or b"").decode(errors="replace"), complaint


def refusal(what: str, said: str) -> ProviderError:
    """Returns the error of an order that was not carried out: the host is full, a file is in use, or another reason."""
    words = said.lower()
    full, taken = any(word in words for word in _FULL), "is another process using the image" in words
    error = NoCapacity if full else Unavailable if taken else Rejected
    return error(f"{what}: {said or 'no reason was given'}")
