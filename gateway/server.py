"""Serves the application with uvicorn, until its block ends."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from domain.errors import Category, Refused

HEADER_SECONDS = 10.0
STALLED_SECONDS = 60.0  # for which a client may take nothing of an answer that waits for it
MAX_HEADERS = 64 * 1024
GRACE_SECONDS = 3  # for requests that wait, when the gateway stops


class DeadlineProtocol(H11Protocol):
    """HTTP whose headers must arrive in time, and whose answers must be taken: uvicorn itself would wait for ever."""

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # asyncio does it for sockets that name their protocol, and an accepted one does not: without it the body of an
        # answer waits for the client to acknowledge the headers, 40 ms and more.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect_headers()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_stalled()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_stalled()
        if self._deadline:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _cancel_stalled(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None

    def _expect_headers(self) -> None:
        """Start the deadline when headers begin, stop it when they are complete."""
        waits = self.cycle is None or self.cycle.response_complete
        if waits and self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._close_after_deadline)
        elif not waits and self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _close_after_deadline(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class ServerWithoutSignals(uvicorn.Server):
    """A server within a larger program, which handles the signals itself."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serve_app(app: ASGIApp, host: str, port: int, or_any_port: bool = False) -> AsyncIterator[str]:
    """Serve the app while the block lasts; yields its URL. Refused if the port cannot be had. Port 0: any free one."""
    listener = _open_socket(host, port, or_any_port)
    config = uvicorn.Config(
        app,
        http=DeadlineProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=MAX_HEADERS,
    )
    server = ServerWithoutSignals(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


def _open_socket(host: str, port: int, or_any_port: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if or_any_port and error.errno == errno.EADDRINUSE:
            return socket.create_server((host, 0), family=family)
        raise Refused(
            Category.INVALID,
            f"the gateway cannot listen on {host} port {port}: {error.strerror or error}",
            "choose another with --port, or RATCHET_GATEWAY_PORT",
        ) from error
