"""The proxy of a service: accepts connections on the service's port and passes them to a healthy instance.

A program of its own, of the standard library only, so that it outlives the worker: `proxy.py PORT ROUTES`. ROUTES is a
file with the routes to the instances, read again whenever it changes. An instance with a network of its own has nothing
but a loopback there: whoever connects to it enters that network first, which only root can.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 2.0  # seconds to wait for an instance before a connection is closed
DRAIN_SECONDS = 5.0  # seconds for open connections after SIGTERM
PORT_PAUSE = 0.2  # seconds between tries to get a port that another process has
BLOCK_BYTES = 65_536
CLONE_NEWNET = 0x40000000


class InstanceRoute(NamedTuple):
    """Where an instance answers: a port of this machine or, with a pid, of the network of that process."""

    port: int
    pid: int = 0
    started: int = 0  # the process's start time, as pids are used again


async def connect_to_route(route: InstanceRoute) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to an instance; raises OSError."""
    if not route.pid:
        return await asyncio.open_connection(LOOPBACK, route.port)
    outlet = _socket_in_network(route)
    try:
        await asyncio.get_running_loop().sock_connect(outlet, (LOOPBACK, route.port))
        return await asyncio.open_connection(sock=outlet)
    except BaseException:
        outlet.close()
        raise


def _socket_in_network(route: InstanceRoute) -> socket.socket:
    """Returns a socket in the network of a process. A socket stays in the network that it was made in."""
    network = os.open(f"/proc/{route.pid}/ns/net", os.O_RDONLY)
    made: list[socket.socket | OSError] = []

    def make_socket() -> None:
        try:
            if ctypes.CDLL(None, use_errno=True).setns(network, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "its network cannot be entered")
            made.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
        except OSError as error:
            made.append(error)

    try:
        fields = Path(f"/proc/{route.pid}/stat").read_text().rpartition(")")[2].split()
        if int(fields[19]) != route.started:  # looked at after the open: what is open is of the right process
            raise ProcessLookupError(f"process {route.pid} is another one now")
        thread = threading.Thread(target=make_socket)  # which ends there: only threads enter a network
        thread.start()
        thread.join()
    finally:
        os.close(network)
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


class RoutesFile:
    """The routes to a service's instances, used in turn."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = 0
        self._routes: list[InstanceRoute] = []
        self._turn = 0

    def rotate_routes(self) -> list[InstanceRoute]:
        """Returns all routes, beginning with the next one in turn."""
        with suppress(OSError, ValueError):
            changed = self._file.stat().st_mtime_ns
            if changed != self._seen:
                self._routes = [InstanceRoute(*words) for words in json.loads(self._file.read_text())]
                self._seen = changed
        if not self._routes:
            return []
        self._turn = (self._turn + 1) % len(self._routes)
        return self._routes[self._turn :] + self._routes[: self._turn]


class ServiceProxy:
    """Passes each connection to an instance that accepts it. `open_connections` are under way."""

    def __init__(self, routes: RoutesFile) -> None:
        self._routes = routes
        self.open_connections: set[asyncio.Task[None]] = set()

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.open_connections.add(task)
        try:
            if upstream := await self._connect_to_instance():
                try:
                    await asyncio.gather(_copy_stream(reader, upstream[1]), _copy_stream(upstream[0], writer))
                finally:
                    upstream[1].close()
        finally:
            self.open_connections.discard(task)
            writer.close()

    async def _connect_to_instance(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connects to an instance; tries the next one on failure, as nothing was sent yet."""
        deadline = asyncio.get_running_loop().time() + CONNECT_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            for route in self._routes.rotate_routes():
                with suppress(OSError):
                    return await connect_to_route(route)
            await asyncio.sleep(0.02)
        return None


async def _copy_stream(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copies bytes until the source ends; then closes only that direction."""
    try:
        while block := await source.read(BLOCK_BYTES):
            sink.write(block)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
    except OSError:  # one side is gone: end the other
        sink.transport.abort()


async def _listen(front: ServiceProxy, port: int, stop: asyncio.Event) -> asyncio.Server | None:
    """Listens on the port, once nobody else does any more; None if told to stop before."""
    while not stop.is_set():
        try:
            return await asyncio.start_server(front.handle_connection, LOOPBACK, port, backlog=1_024)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        with suppress(TimeoutError):
            async with asyncio.timeout(PORT_PAUSE):
                await stop.wait()
    return None


async def serve_until_stopped(port: int, file: Path) -> None:
    """Serves until SIGTERM; then accepts no more connections, and gives open ones a few seconds."""
    stop = asyncio.Event()
    for word in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(word, stop.set)
    front = ServiceProxy(RoutesFile(file))
    server = await _listen(front, port, stop)
    await stop.wait()
    if server:
        server.close()
    if front.open_connections:
        await asyncio.wait(front.open_connections, timeout=DRAIN_SECONDS)


if __name__ == "__main__":
    asyncio.run(serve_until_stopped(int(sys.argv[1]), Path(sys.argv[2])))
