"""Automatic heartbeats of an activity, so that a dead worker is noticed in seconds and a cancel arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity

HEARTBEAT_SECONDS = 1.0


@asynccontextmanager
async def send_heartbeats() -> AsyncIterator[None]:
    """Sends heartbeats while the body runs."""
    task = asyncio.create_task(_heartbeat_loop())
    try:
        yield
    finally:
        task.cancel()


async def _heartbeat_loop() -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        activity.heartbeat()
