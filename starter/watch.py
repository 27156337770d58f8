"""`--watch`: prints a command's output again whenever it has changed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from starter import terminal
from starter.errors import ExitCode
from starter.session import shared_client

WATCH_SECONDS = 1.0  # between polls: the inventory has no notifications


async def run_once_or_watch(watch: bool, look: Callable[[], Awaitable[ExitCode]]) -> ExitCode:
    """Runs a read once; with --watch, repeats it on one connection until Ctrl-C or until the object is gone."""
    if not watch:
        return await look()
    shown: terminal.Lines = []
    async with shared_client():
        while True:
            with terminal.capture_output() as lines:
                await look()
            if lines != shown:
                terminal.print_collected([*([terminal.EMPTY_LINE] if shown else []), *lines])
                sys.stdout.flush()  # for a reader of a pipe
                shown = lines
            await asyncio.sleep(WATCH_SECONDS)
