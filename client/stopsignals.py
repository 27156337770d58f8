"""SIGTERM and SIGINT as an event, for processes that run until they are stopped."""

from __future__ import annotations

import asyncio
import signal


def make_stop_event() -> asyncio.Event:
    """Returns an event that SIGTERM or SIGINT sets."""
    event = asyncio.Event()
    for word in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(word, event.set)
    return event
