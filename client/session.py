"""`connect`: a connected client for as long as a block lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.client import Client
from temporalio.plugin import SimplePlugin

from client import tracing
from client.actions import ActionClient
from client.connect_errors import translated, unreachable_at
from client.connection import connect_temporal, connection, embedded
from client.payloads import converter
from client.settings import ClientSettings, load

CONNECT_SECONDS = 5


@asynccontextmanager
async def connect(settings: ClientSettings | None = None, trace: str = "client") -> AsyncIterator[ActionClient]:
    """Connects a client, or raises Unreachable. Without settings, those of the environment are used.

    Temporal's errors leave the block as ours. `trace` names the block in a trace.
    """
    settings = settings or load(ClientSettings)
    temporal = await _connected(settings)
    with translated(temporal.namespace), tracing.traced(settings, trace):
        yield ActionClient(temporal, web_ui(settings, temporal.service_client.config.target_host))


def web_ui(settings: ClientSettings, address: str) -> str:
    """Returns the Web UI's address: the setting, or the embedded server's if that is connected; else empty."""
    server = embedded(settings.home)
    own = str(server.get("ui", "")) if server.get("address") == address else ""
    return (settings.ui_url or own).rstrip("/")


async def _connected(settings: ClientSettings) -> Client:
    address = connection(settings.home)["target_host"]
    # Only the converter, not the workers' plugin: that would import every workflow.
    plugin = SimplePlugin("ratchet-client", data_converter=converter(settings))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await connect_temporal(settings.home, *tracing.plugins(settings), plugin)
    except TimeoutError as error:
        raise unreachable_at(address, f"no answer in {CONNECT_SECONDS} s") from error
    except (RuntimeError, ValueError) as error:
        raise unreachable_at(address, str(error)) from error
