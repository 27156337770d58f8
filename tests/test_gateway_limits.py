"""What the gateway cuts off: large bodies, slow headers, foreign sites, and readers that take nothing."""

# ruff: noqa: F811  fixtures that are imported are named by tests
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from domain.events import FIRST_CURSOR, Event, EventCursor
from gateway import guard, native, server
from gateway.context import Gateway
from tests.patience import PATIENCE
from tests.test_gateway import create, gateway, http, read_events, url, web  # noqa: F401  fixtures

pytestmark = pytest.mark.stores("sqlite", "postgres")


async def test_requests_that_are_too_large_too_slow_or_of_another_site_are_cut_off(
    http: httpx.AsyncClient, url: str, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = await http.post(f"/v1/objects/{web}/actions/create", content=b" " * (guard.MAX_BODY_BYTES + 1))
    assert large.status_code == 413

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1_000):
            yield b" " * 1024

    chunked = await http.post(
        f"/v1/objects/{web}/actions/create", content=endless(), headers={"Content-Type": "application/json"}
    )
    assert chunked.status_code == 413
    assert (await http.get("/v1/kinds", headers={"Host": "evil.example"})).status_code == 421
    assert (await http.get("/v1/kinds", headers={"Origin": "http://evil.example"})).status_code == 403
    port = int(url.rpartition(":")[2])
    headers = await until_closed(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * server.MAX_HEADERS)
    assert headers.startswith(b"HTTP/1.1 400")
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    assert await until_closed(port, b"GET /healthz HTTP/1.1\r\n") == b""
    monkeypatch.setattr(server, "HEADER_SECONDS", PATIENCE)  # only the body is late
    slow = b"POST /v1/objects/x/actions/create HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n"
    answered = await until_closed(port, slow + b"Content-Type: application/json\r\nConnection: close\r\n\r\n{")
    assert answered.startswith(b"HTTP/1.1 408")


async def test_who_takes_nothing_of_a_stream_is_cut_off_and_another_gets_its_place(
    http: httpx.AsyncClient, gateway: Gateway, url: str, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(http, web)
    monkeypatch.setattr(native, "MAX_STREAMS", 1)
    line = (await gateway.feed.read_page(FIRST_CURSOR))[0].line.model_copy(update={"message": "x" * 100_000})
    begun = asyncio.Event()

    async def endless_events(cursor: EventCursor, _seconds: float) -> list[Event]:
        begun.set()
        await asyncio.sleep(0)
        return [Event(id=str(cursor), line=line)]

    async def open_stream() -> asyncio.StreamWriter:
        begun.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1)
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await begun.wait()
        return writer

    async def all_closed() -> None:
        while gateway.streams:
            await asyncio.sleep(0.01)

    with monkeypatch.context() as patched:
        patched.setattr(gateway.feed, "wait_for_events", endless_events)
        patched.setattr(server, "STALLED_SECONDS", PATIENCE)
        async with asyncio.timeout(PATIENCE):
            slow = await open_stream()
            full = await http.get("/v1/events")
            assert (full.status_code, full.json()["detail"]) == (503, "1 event streams are open")
            slow.transport.abort()
            await all_closed()
            patched.setattr(server, "STALLED_SECONDS", 0.2)
            stalled = await open_stream()
            await all_closed()
    stalled.close()
    assert await read_events(http, 1, after="0")


async def until_closed(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()
    return answer
