"""Servers within a test, and the connection of a CRM or a command to Temporal, which a test can cut."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server. Whatever becomes of a connection, it is closed, and all are when the block ends."""
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
    is_over = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError):  # the other side is gone
                await handle(reader, writer)
        finally:
            writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_over:  # it was accepted just before
            writer.transport.abort()
            return
        task = asyncio.create_task(serve(reader, writer))
        serving[task] = writer  # at once: a task that has not begun is one that must be ended, too
        task.add_done_callback(serving.pop)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        is_over = True
        # A round between the two: Python 3.11 loses a connection that it has accepted but has no transport for yet when
        # the server is closed. It stays open until it is collected, and fails whatever test runs then.
        asyncio.get_running_loop().remove_reader(server.sockets[0].fileno())
        try:
            await asyncio.sleep(0)
        finally:
            server.close()
        ending = dict(serving)
        for task, writer in ending.items():
            writer.transport.abort()  # what could not be sent would keep it open
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Reads an HTTP request: its head and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return head, await reader.readexactly(int(length[1]) if length else 0)


@asynccontextmanager
async def wire_to(address: str) -> AsyncIterator[Wire]:
    host, port = address.split(":")
    found = Wire(host, int(port))
    async with listening(found.serve) as found.address:
        yield found


class Wire:
    """A network cable to the server, that can be cut and mended. Cut, it aborts every connection."""

    def __init__(self, host: str, port: int) -> None:
        self.address = ""
        self._host, self._port = host, port
        self._writers: list[asyncio.StreamWriter] = []
        self._whole = True

    def cut(self) -> None:
        self._whole = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def mend(self) -> None:
        self._whole = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, far_writer]
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            far_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
