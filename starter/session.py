"""One command's connection to Temporal, whose SDK is imported late: that takes most of a second."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING

from client.gateway import claimed_name
from client.reading import GatewayQueries, Queries, find_own_gateway
from starter import terminal

if TYPE_CHECKING:
    from temporalio.runtime import Runtime

    from client.actions import ActionClient
    from client.settings import ClientSettings

COMMAND_NAME: ContextVar[str] = ContextVar("COMMAND", default="starter")  # the name of the command's trace
_SHARED_CLIENT: ContextVar[ActionClient | None] = ContextVar("KEPT", default=None)


@asynccontextmanager
async def open_client() -> AsyncIterator[ActionClient]:
    """Yields a connected client, or raises Unreachable: the one of `shared_client`, or a new one for this command."""
    if kept := _SHARED_CLIENT.get():
        yield kept
        return
    from client.session import connect

    async with connect(trace=COMMAND_NAME.get(), runtime=_quiet_runtime()) as asking:
        asking.on_delay = _say_delay
        yield asking


def _say_delay() -> None:
    terminal.print_message("the workers have much to do: still waiting for their answer")


@cache
def _quiet_runtime() -> Runtime:
    """Returns a runtime whose core logs nothing: in an outage it would write coloured lines into our output."""
    from temporalio.runtime import Runtime, TelemetryConfig

    return Runtime(telemetry=TelemetryConfig(logging=None))


@asynccontextmanager
async def _open_reading_client() -> AsyncIterator[Queries]:
    if kept := _SHARED_CLIENT.get():
        yield kept
        return
    from client.session import connect_reader

    async with connect_reader(COMMAND_NAME.get(), _quiet_runtime()) as client:
        yield client


@asynccontextmanager
async def open_reader() -> AsyncIterator[Queries]:
    """Yields what answers reads: the gateway of `starter up`, which needs no connection to Temporal; else a client."""
    gateway = None if _SHARED_CLIENT.get() else find_own_gateway(os.environ)
    async with AsyncExitStack() as stack:

        async def connect() -> Queries:
            return await stack.enter_async_context(_open_reading_client())

        yield GatewayQueries(gateway, claimed_name(os.environ), connect) if gateway else await connect()


@asynccontextmanager
async def shared_client() -> AsyncIterator[None]:
    """Shares one connection between all sessions within the block."""
    async with open_client() as client:
        before = _SHARED_CLIENT.set(client)
        try:
            yield
        finally:
            _SHARED_CLIENT.reset(before)


def load_settings() -> ClientSettings:
    """Reads the client's settings from the environment, or raises Refused. A worker's: `stack.worker_settings`."""
    from client.settings import ClientSettings, load_settings

    return load_settings(ClientSettings)
