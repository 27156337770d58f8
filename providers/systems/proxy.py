"""The proxy of a service: accepts connections on the service's port and passes them to a healthy instance.

A program of its own, of the standard library only, so that it outlives the worker: `proxy.py PORT ROUTES`. ROUTES is a
file with the instances' ports, read again whenever it changes.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from pathlib import Path

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 2.0  # seconds to wait for an instance before a connection is closed
DRAIN_SECONDS = 5.0  # seconds for open connections after SIGTERM
BLOCK_BYTES = 65_536


class RoutesFile:
    """The ports of a service's instances, used in turn."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = 0
        self._ports: list[int] = []
        self._turn = 0

    def ports_in_turn(self) -> list[int]:
        """Returns all ports, beginning with the next one in turn."""
        with suppress(OSError, ValueError):
            changed = self._file.stat().st_mtime_ns
            if changed != self._seen:
                self._ports, self._seen = json.loads(self._file.read_text()), changed
        if not self._ports:
            return []
        self._turn = (self._turn + 1) % len(self._ports)
        return self._ports[self._turn :] + self._ports[: self._turn]


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
            for port in self._routes.ports_in_turn():
                with suppress(OSError):
                    return await asyncio.open_connection(LOOPBACK, port)
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


async def serve_until_stopped(port: int, file: Path) -> None:
    """Serves until SIGTERM; then accepts no more connections, and gives open ones a few seconds."""
    stop = asyncio.Event()
    for word in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(word, stop.set)
    front = ServiceProxy(RoutesFile(file))
    server = await asyncio.start_server(front.handle_connection, LOOPBACK, port, backlog=1_024)
    await stop.wait()
    server.close()
    if front.open_connections:
        await asyncio.wait(front.open_connections, timeout=DRAIN_SECONDS)


if __name__ == "__main__":
    asyncio.run(serve_until_stopped(int(sys.argv[1]), Path(sys.argv[2])))
