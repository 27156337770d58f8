"""One command's connection to Temporal, whose SDK is imported late: that takes most of a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client.actions import ActionClient
    from client.settings import ClientSettings

COMMAND: ContextVar[str] = ContextVar("COMMAND", default="starter")  # the name of the command's trace
_KEPT: ContextVar[ActionClient | None] = ContextVar("KEPT", default=None)


@asynccontextmanager
async def session() -> AsyncIterator[ActionClient]:
    """Yields a connected client, or raises Unreachable: the one of `lasting`, or a new one for this command."""
    if kept := _KEPT.get():
        yield kept
        return
    from client.session import connect

    async with connect(trace=COMMAND.get()) as asking:
        yield asking


@asynccontextmanager
async def lasting() -> AsyncIterator[None]:
    """Shares one connection between all sessions within the block."""
    async with session() as asking:
        before = _KEPT.set(asking)
        try:
            yield
        finally:
            _KEPT.reset(before)


def load_settings() -> ClientSettings:
    """Reads the client's settings from the environment, or raises Refused. A worker's: `stack.worker_settings`."""
    from client.settings import ClientSettings, load

    return load(ClientSettings)
