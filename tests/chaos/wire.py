"""The connection between a worker and Temporal, which a test can cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.cable import listening


class Wire:
    """A TCP proxy in front of a server. When cut, it accepts connections and data, and passes nothing on."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._whole = asyncio.Event()
        self._whole.set()
        self.address = ""
        self.connections = 0  # so far

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        host, port = self._server.split(":")
        there, onward = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(self._pass_on(reader, onward), self._pass_on(there, writer))
        finally:
            onward.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                await self._whole.wait()
                sink.write(data)
                await sink.drain()
        sink.close()


@asynccontextmanager
async def wire_to(server: str) -> AsyncIterator[Wire]:
    wire = Wire(server)
    async with listening(wire.lead) as wire.address:
        yield wire
