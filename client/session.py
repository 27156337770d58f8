"""`connect`: a connected client for as long as a block lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

from temporalio.client import Client
from temporalio.runtime import Runtime

from client import tracing
from client.actions import ActionClient
from client.connect_errors import explain_guessed_address, translate_errors, unreachable_at_address
from client.connection import connect_temporal, find_temporal_options, is_address_guessed
from client.gateway import GatewayReader, find_gateway
from client.homefiles import read_embedded_options
from client.message_signer import make_message_signer
from client.payloads import PayloadPlugin, data_converter
from client.settings import ClientSettings, load_settings
from client.shutdown import prepare_exit

CONNECT_SECONDS = 5


@asynccontextmanager
async def connect(
    settings: ClientSettings | None = None, trace: str = "client", runtime: Runtime | None = None
) -> AsyncIterator[ActionClient]:
    """Connects a client, or raises Unreachable. Without settings, those of the environment are used.

    Temporal's errors leave the block as ours. `trace` names the block in a trace.
    """
    settings = settings or load_settings(ClientSettings)
    runtime = runtime or Runtime.default()
    prepare_exit(runtime)
    with _explain_guess(settings):
        temporal = await _connect_client(settings, runtime)
    address = temporal.service_client.config.target_host
    client = ActionClient(temporal, find_web_ui(settings, address), make_message_signer(settings, temporal.namespace))
    if gateway := find_gateway(settings.home, address, temporal.namespace):
        client.gateway = GatewayReader(gateway)
    with _explain_guess(settings), translate_errors(temporal.namespace), tracing.trace_command(settings, trace):
        yield client


def find_web_ui(settings: ClientSettings, address: str) -> str:
    """Returns the Web UI's address: the setting, or the embedded server's if that is connected; else empty."""
    server = read_embedded_options(settings.home)
    own = str(server.get("ui", "")) if server.get("address") == address else ""
    return (settings.ui_url or own).rstrip("/")


def _explain_guess(settings: ClientSettings) -> AbstractContextManager[None]:
    if not is_address_guessed(settings.home):
        return nullcontext()
    return explain_guessed_address(find_temporal_options(settings.home)["target_host"], settings.home)


async def _connect_client(settings: ClientSettings, runtime: Runtime) -> Client:
    address = find_temporal_options(settings.home)["target_host"]
    # Only the converter, not the workers' plugin: that would import every workflow.
    plugin = PayloadPlugin("ratchet-client", data_converter=data_converter(settings))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await connect_temporal(settings.home, *tracing.tracing_plugins(settings), plugin, runtime=runtime)
    except TimeoutError as error:
        raise unreachable_at_address(address, f"no answer in {CONNECT_SECONDS} s") from error
    except (RuntimeError, ValueError) as error:
        raise unreachable_at_address(address, str(error)) from error
