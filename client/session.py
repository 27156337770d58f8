"""`connect`: a connected client for as long as a block lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from temporalio.client import Client
from temporalio.runtime import Runtime

from client import tracing
from client.connect_errors import explain_guessed_address, translate_errors, unreachable_at_address
from client.connection import connect_temporal, find_temporal_options, is_address_guessed
from client.gateway import find_gateway
from client.homefiles import read_embedded_options
from client.message_signer import MessageSigner, make_message_signer
from client.payloads import data_converter, seal_to_namespace
from client.queries import WorkerQueries
from client.reading import GatewayReader
from client.settings import ClientSettings, load_settings
from client.shutdown import prepare_exit

if TYPE_CHECKING:
    from client.actions import ActionClient

CONNECT_SECONDS = 5
C = TypeVar("C", bound=WorkerQueries)


@asynccontextmanager
async def connect(
    settings: ClientSettings | None = None, trace: str = "client", runtime: Runtime | None = None
) -> AsyncIterator[ActionClient]:
    """Connects a client, or raises Unreachable. Without settings, those of the environment are used.

    Temporal's errors leave the block as ours. `trace` names the block in a trace.
    """
    from client.actions import ActionClient  # imported late: what only reads does not need it

    async with _connect(ActionClient, settings, trace, runtime) as client:
        yield client


@asynccontextmanager
async def connect_reader(trace: str, runtime: Runtime) -> AsyncIterator[WorkerQueries]:
    """Connects a client that only reads."""
    async with _connect(lambda temporal, _ui, signer: WorkerQueries(temporal, signer), None, trace, runtime) as client:
        yield client


@asynccontextmanager
async def _connect(
    make_client: Callable[[Client, str, MessageSigner], C],
    settings: ClientSettings | None,
    trace: str,
    runtime: Runtime | None,
) -> AsyncIterator[C]:
    settings = settings or load_settings(ClientSettings)
    runtime = runtime or Runtime.default()
    prepare_exit(runtime)
    with _explain_guess(settings):
        temporal = await _connect_client(settings, runtime)
    address = temporal.service_client.config.target_host
    client = make_client(temporal, find_web_ui(settings, address), make_message_signer(settings, temporal.namespace))
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
    options = find_temporal_options(settings.home)
    address = options["target_host"]
    # Only the converter, not the workers' plugin: that would import every workflow, and the SDK's own worker.
    converter = seal_to_namespace(data_converter(settings), options["namespace"])
    plugins = tracing.tracing_plugins(settings)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await connect_temporal(settings.home, *plugins, runtime=runtime, data_converter=converter)
    except TimeoutError as error:
        raise unreachable_at_address(address, f"no answer in {CONNECT_SECONDS} s") from error
    except (RuntimeError, ValueError) as error:
        raise unreachable_at_address(address, str(error)) from error
