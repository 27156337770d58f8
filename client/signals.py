"""How a process that runs until it is told to stop hears of it."""

from __future__ import annotations

import asyncio
import signal


def stopped() -> asyncio.Event:
    """Set when somebody asks this process to end."""
    event = asyncio.Event()
    for word in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(word, event.set)
    return event
