"""Servers within tests leave no connection behind: one that is collected later fails whatever test runs then."""

from __future__ import annotations

import asyncio
import socket

from tests.cable import listening
from tests.patience import PATIENCE, within


async def never(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def connect(address: str) -> socket.socket:
    host, port = address.split(":")
    made = socket.create_connection((host, int(port)), PATIENCE)  # the kernel takes it: no round of the loop passes
    made.setblocking(False)
    return made


async def is_closed(end: socket.socket) -> bool:
    try:
        return await asyncio.get_running_loop().sock_recv(end, 1) == b""
    except ConnectionResetError:
        return True


async def test_a_connection_is_closed_with_its_server_however_far_it_got() -> None:
    for rounds in range(8):  # from one that waits in the kernel to one whose handler runs
        async with listening(never) as address:
            end = connect(address)
            for _ in range(rounds):
                await asyncio.sleep(0)
        with end:
            async with within(PATIENCE, f"it is open after {rounds} rounds"):
                assert await is_closed(end)
