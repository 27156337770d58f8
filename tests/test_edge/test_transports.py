"""A webhook that does not accept a request: its error decides whether the request may have arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from domain.edge.messages import CrmAddress, CrmRequest, CrmVerb
from domain.errors import ProviderError, Rejected, Unavailable, UnknownOutcome
from providers.edge.transports import WebhookTransport
from workers.embedded import find_free_port

CLOUDLET = "org:acme:cloudlet:berlin"
REQUEST = CrmRequest(path=CLOUDLET, verb=CrmVerb.ALL_DATA, notify_id=1, version="v1", attempt=1)


async def post(url: str) -> None:
    to = CrmAddress(cloudlet=CLOUDLET, notify_id=1, version="v1", transport="webhook", url=url)
    await WebhookTransport().send_requests(to, [REQUEST], freely)


async def freely() -> None:
    """A fence that lets every request pass."""


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """Somebody who reads the whole request, says this, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize(
    "url",
    [
        "http://crm.example.com/",
        "https://crm.example.com:8443/",
        "https://crm.example.com.evil.example/",
        "https:///x",
        "https://[",
        "x",
    ],
)
async def test_a_webhook_that_is_not_listed_gets_nothing(url: str) -> None:
    to = CrmAddress(cloudlet=CLOUDLET, notify_id=1, version="v1", transport="webhook", url=url)
    for allowed in (["https://crm.example.com"], []):
        with pytest.raises(Rejected, match="is not among RATCHET_WEBHOOKS"):
            await WebhookTransport(allowed).send_requests(to, [REQUEST], freely)


async def test_a_webhook_that_is_listed_gets_its_requests() -> None:
    async with answering(b"HTTP/1.0 204 fine\r\n\r\n") as url:
        to = CrmAddress(cloudlet=CLOUDLET, notify_id=1, version="v1", transport="webhook", url=f"{url}some/path")
        await WebhookTransport([url.rstrip("/")]).send_requests(to, [REQUEST], freely)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (b"", UnknownOutcome),
        (b"who is there?\r\n\r\n", UnknownOutcome),
        (b"HTTP/1.0 503 later\r\n\r\n", Unavailable),
        (b"HTTP/1.0 429 slowly\r\n\r\n", Unavailable),
        (b"HTTP/1.0 403 never\r\n\r\n", Rejected),
        (b"HTTP/1.0 307 there\r\nLocation: http://127.0.0.1:1/\r\n\r\n", Rejected),
        (b"HTTP/1.0 302 there\r\nLocation: http://127.0.0.1:1/\r\n\r\n", Rejected),
    ],
)
async def test_what_a_webhook_answers_tells_whether_it_has_the_request(
    answer: bytes, wanted: type[ProviderError]
) -> None:
    async with answering(answer) as url:
        with pytest.raises(wanted):
            await post(url)


async def test_any_good_answer_means_that_the_crm_has_it() -> None:
    async with answering(b"HTTP/1.0 202 thanks\r\n\r\n") as url:
        await post(url)


async def test_nobody_at_the_address_has_it_for_sure() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        await post(f"http://127.0.0.1:{find_free_port()}/")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://[/", "http://127.0.0.1:port/", "http://127.0.0.1/a b"])
async def test_what_is_no_url_is_not_tried_again(url: str) -> None:
    with pytest.raises(Rejected, match="not a URL"):
        await post(url)
