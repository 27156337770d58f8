"""The front of a service: both sides of a connection end together."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from providers.services.proxy import InstanceRoute, RoutesFile, ServiceProxy
from tests.patience import PATIENCE

HERE = "127.0.0.1"
AT_ONCE = struct.pack("ii", 1, 0)  # closed with a reset, as when a process dies, not with a goodbye


@pytest.mark.parametrize("gone", ["caller", "instance"])
async def test_when_one_side_is_gone_the_other_does_not_wait_for_it(tmp_path: Path, gone: str) -> None:
    taken: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    instance = await asyncio.start_server(lambda *ends: taken.put_nowait(ends), HERE, 0)
    routes = tmp_path / "routes"
    routes.write_text(json.dumps([InstanceRoute(instance.sockets[0].getsockname()[1])]))
    front = ServiceProxy(RoutesFile(routes))
    server = await asyncio.start_server(front.handle_connection, HERE, 0)
    async with asyncio.timeout(PATIENCE):
        near = await asyncio.open_connection(HERE, server.sockets[0].getsockname()[1])
        near[1].write(b"hello")
        far = await taken.get()
        assert await far[0].readexactly(5) == b"hello"
        leaving, staying = (near, far) if gone == "caller" else (far, near)
        leaving[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        leaving[1].transport.abort()
        with suppress(ConnectionResetError):  # it hears how it ended, too
            assert await staying[0].read() == b""
        while front.open_connections:
            await asyncio.wait(front.open_connections)
    staying[1].close()
    server.close()
    instance.close()
