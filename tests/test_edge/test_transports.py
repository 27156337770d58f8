"""A webhook that does not accept a request: its error decides whether the request may have arrived."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from activities.signatures import is_signed_by
from domain.edge.messages import CrmAddress, CrmRequest, CrmVerb
from domain.errors import ProviderError, Rejected, Unavailable, UnknownOutcome
from providers.edge import transports
from providers.edge.token import CrmToken
from providers.edge.transports import WebhookTransport
from tests.cable import listening, read_request
from tests.patience import PATIENCE
from workers.embedded import find_free_port

CLOUDLET = "org:acme:cloudlet:berlin"
REQUEST = CrmRequest(path=CLOUDLET, verb=CrmVerb.ALL_DATA, notify_id=1, version="v1", attempt=1)


@pytest.fixture(autouse=True)
def _a_busy_webhook_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "WEBHOOK_TIMEOUT", PATIENCE)


async def post(url: str) -> None:
    to = CrmAddress(cloudlet=CLOUDLET, notify_id=1, version="v1", transport="webhook", url=url)
    await WebhookTransport(["*"]).send_requests(to, [REQUEST], freely)


async def freely() -> None:
    """A fence that lets every request pass."""


@asynccontextmanager
async def answering(answer: bytes, heard: list[tuple[bytes, bytes]] | None = None) -> AsyncIterator[str]:
    """Somebody who reads the whole request, says this, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, body = await read_request(reader)
        if heard is not None:
            heard.append((head, body))
        writer.write(answer)
        await writer.drain()

    async with listening(serve) as address:
        yield f"http://{address}/"


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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_without_a_list_a_webhook_is_public_and_has_tls(host: str) -> None:
    """A name that leads to this machine is refused at the connection, before anything is said there."""
    said = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.set_result(await reader.read(1))

    async with listening(serve) as address:
        port = address.rpartition(":")[2]
        to = CrmAddress(cloudlet=CLOUDLET, notify_id=1, version="v1", transport="webhook", url="")
        with pytest.raises(Rejected, match="is not https"):
            await WebhookTransport().send_requests(
                to.model_copy(update={"url": f"http://{host}:{port}/"}), [REQUEST], freely
            )
        with pytest.raises(Rejected, match="is in a private network"):
            await WebhookTransport().send_requests(
                to.model_copy(update={"url": f"https://{host}:{port}/"}), [REQUEST], freely
            )
        assert await said == b""


async def test_a_webhook_is_signed_as_standardwebhooks_says(tmp_path: Path) -> None:
    token = CrmToken(tmp_path / "key.pem")
    key = token.create_token()
    heard: list[tuple[bytes, bytes]] = []
    async with answering(b"HTTP/1.0 204 fine\r\n\r\n", heard) as url:
        to = CrmAddress(cloudlet=CLOUDLET, notify_id=1, version="v1", transport="webhook", url=url)
        for _ in range(2):
            await WebhookTransport(["*"], token).send_requests(to, [REQUEST], freely)
    names = set()
    for head, body in heard:
        fields = dict(line.split(": ", 1) for line in head.decode().lower().splitlines() if ": " in line)
        (signature,) = re.findall(r"(?i)webhook-signature: v1a,(\S+)", head.decode())
        assert is_signed_by(key, f"{fields['webhook-id']}.{fields['webhook-timestamp']}.{body.decode()}", signature)
        assert not is_signed_by(
            key, f"{fields['webhook-id']}.{fields['webhook-timestamp']}.{body.decode()} ", signature
        )
        assert abs(int(fields["webhook-timestamp"]) - time.time()) < 60
        names.add(fields["webhook-id"])
    assert len(names) == 1, "a repeated request has the ID of the first"


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
