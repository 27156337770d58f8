"""`--watch`: what a command shows, again whenever it has changed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

from cyclopts import Parameter

from starter import terminal
from starter.errors import Exit
from starter.session import lasting

SECONDS = 1.0  # between two looks: the inventory tells nobody that it has changed

WatchOption = Annotated[bool, Parameter(negative="", help="Go on, and print it again whenever it has changed.")]


async def watching(watch: bool, look: Callable[[], Awaitable[Exit]]) -> Exit:
    """Look once; or, watched, over and over on one connection, until Ctrl-C or until there is nothing left to see."""
    if not watch:
        return await look()
    shown: terminal.Lines = []
    async with lasting():
        while True:
            with terminal.held() as lines:
                await look()
            if lines != shown:
                terminal.release([*([terminal.GAP] if shown else []), *lines])
                sys.stdout.flush()  # somebody may read it through a pipe
                shown = lines
            await asyncio.sleep(SECONDS)
