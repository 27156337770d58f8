"""Transports of requests to CRMs: a Temporal task queue per cloudlet, or a webhook."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from http.client import HTTPException, HTTPResponse, HTTPSConnection, InvalidURL
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.service import RPCError

from domain.edge import messages
from domain.edge.messages import CrmAddress, CrmRequest, CrmRequests
from domain.edge.ports import CrmTransport, ProveRight
from domain.errors import RatchetError, Rejected, Unavailable, UnknownOutcome, format_one_line
from providers.edge.token import CrmToken

GATHER_SECONDS = 0.002  # seconds that a first request waits for others, to share one task
MAX_REQUESTS_PER_TASK = 100
MAX_BYTES_PER_TASK = 1_000_000
TASK_LIFETIME = timedelta(hours=1)  # how long a request waits for its CRM; the controller repeats it earlier
TASK_TIMEOUT = timedelta(seconds=10)
ANY_WEBHOOK = "*"  # for tests and trials: also plain and private ones
WEBHOOK_TIMEOUT = 8  # seconds; less than a probe has


@dataclass
class _UnsentRequests:
    """A batch of requests for one CRM. `prove` raises if they may no longer be sent; `sent` is done once they are
    sent, or have failed.
    """

    requests: Sequence[CrmRequest]
    prove: ProveRight
    sent: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def size(self) -> int:
        return sum(len(request.model_dump_json()) for request in self.requests)

    def fail_requests(self, error: BaseException) -> None:
        if not self.sent.done():
            self.sent.set_exception(error)
            self.sent.exception()  # marked as retrieved, as the sender may be gone

    async def check_still_allowed(self) -> bool:
        """Proves the right just before sending: the requests may have waited in a frozen worker."""
        try:
            await self.prove()
        except RatchetError as error:
            self.fail_requests(error)
            return False
        return True


class TaskQueueTransport:
    """Sends requests as tasks on the queue of the cloudlet's CRM; batches those that arrive meanwhile."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[str, list[_UnsentRequests]] = {}  # by queue: the next batch
        self._senders: dict[str, asyncio.Task[None]] = {}

    async def send_requests(self, to: CrmAddress, requests: Sequence[CrmRequest], prove: ProveRight) -> None:
        queue = messages.crm_queue(to.cloudlet, to.version)
        letter = _UnsentRequests(requests, prove)
        self._waiting.setdefault(queue, []).append(letter)
        if queue not in self._senders:
            self._senders[queue] = asyncio.create_task(self._send_waiting_batches(queue))
        await asyncio.shield(letter.sent)

    async def _send_waiting_batches(self, queue: str) -> None:
        """Sends one batch after the other until none is left."""
        await asyncio.sleep(GATHER_SECONDS)
        try:
            while box := self._waiting.pop(queue, None):
                for letters in _split_into_bundles(box):
                    await self._send_bundle(queue, letters)
        finally:
            del self._senders[queue]

    async def _send_bundle(self, queue: str, letters: list[_UnsentRequests]) -> None:
        may = await asyncio.gather(*(letter.check_still_allowed() for letter in letters))
        going = [letter for letter, goes in zip(letters, may, strict=True) if goes]
        try:
            if going:
                await self._start_activity(queue, [request for letter in going for request in letter.requests])
            for letter in going:
                letter.sent.set_result(None)
        except RPCError as error:
            for letter in going:
                letter.fail_requests(
                    Unavailable(f"Temporal did not take the request: {format_one_line(error.message, 200)}")
                )

    async def _start_activity(self, queue: str, requests: list[CrmRequest]) -> None:
        await self._client.start_activity(
            messages.CRM_REQUESTS,
            CrmRequests(requests=requests),
            id=f"crm-{uuid.uuid4().hex}",
            task_queue=queue,
            schedule_to_close_timeout=TASK_LIFETIME,
            start_to_close_timeout=TASK_TIMEOUT,
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=5)),
            summary=f"{requests[0].verb} {requests[0].path}" + (f" and {len(requests) - 1} more" * (len(requests) > 1)),
        )


def _split_into_bundles(letters: list[_UnsentRequests]) -> Iterator[list[_UnsentRequests]]:
    """Splits requests into tasks of bounded number and size."""
    some: list[_UnsentRequests] = []
    number = size = 0
    for letter in letters:
        if some and (number + len(letter.requests) > MAX_REQUESTS_PER_TASK or size + letter.size > MAX_BYTES_PER_TASK):
            yield some
            some, number, size = [], 0, 0
        some.append(letter)
        number, size = number + len(letter.requests), size + letter.size
    if some:
        yield some


class SigningTransport:
    """Signs each request with the worker's key, so that a CRM can tell the orders of its controller from others'."""

    def __init__(self, transport: CrmTransport, key: CrmToken) -> None:
        self._transport = transport
        self._key = key

    async def send_requests(self, to: CrmAddress, requests: Sequence[CrmRequest], prove: ProveRight) -> None:
        signed = [
            request.model_copy(update={"proof": self._key.sign_text(request.text_to_sign)}) for request in requests
        ]
        await self._transport.send_requests(to, signed, prove)


class WebhookTransport:
    """Posts requests as one JSON document to the cloudlet's URL; any 2xx means accepted. Redirects are not followed.

    `allowed` lists the origins that it may post to, such as `https://crm.example.com`, or `*`; None: every public one
    by https. With a key, posts are signed as standardwebhooks.com says (`v1a`, Ed25519).
    """

    def __init__(self, allowed: Sequence[str] | None = None, key: CrmToken | None = None) -> None:
        self._only_public = allowed is None
        self._allowed = None if allowed is None or ANY_WEBHOOK in allowed else {_origin_of_url(url) for url in allowed}
        self._key = key

    def check_url(self, url: str) -> None:
        """Raises Rejected if no request may be sent there, whatever address it turns out to have."""
        if self._only_public and not url.startswith("https://"):
            raise Rejected(f"the webhook {url[:80]!r} is not https, and not among RATCHET_WEBHOOKS of the workers")
        if self._allowed is not None and _origin_of_url(url) not in self._allowed:
            raise Rejected(f"the webhook {url[:80]!r} is not among RATCHET_WEBHOOKS of the workers")

    async def send_requests(self, to: CrmAddress, requests: Sequence[CrmRequest], prove: ProveRight) -> None:
        self.check_url(to.url)
        body = CrmRequests(requests=list(requests)).model_dump_json()
        await prove()
        await asyncio.to_thread(_post_json, to.url, body.encode(), self._signature_headers(body), self._only_public)

    def _signature_headers(self, body: str) -> dict[str, str]:
        """Returns the headers by which a receiver knows the sender; a repeated post has the same ID."""
        if self._key is None:
            return {}
        name, at = f"msg_{hashlib.sha256(body.encode()).hexdigest()[:32]}", str(int(time.time()))
        signature = f"v1a,{self._key.sign_text(f'{name}.{at}.{body}')}"
        return {"webhook-id": name, "webhook-timestamp": at, "webhook-signature": signature}


def _origin_of_url(url: str) -> tuple[str, str, int | None]:
    """Returns scheme, host and port of a URL; an empty host if it has none."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", "", None


@cache
def _make_opener(only_public: bool) -> urllib.request.OpenerDirector:
    """Returns an opener that follows no redirect: one could lead into networks that only the worker reaches.

    With `only_public` neither may a name: what it means is checked at the connection itself, before anything is sent.
    """

    class NoRedirectHandler(urllib.request.HTTPRedirectHandler):  # not at import: a workflow's sandbox would refuse it
        def redirect_request(self, *args: object) -> None:
            return None

    class PublicConnection(HTTPSConnection):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self._create_connection = _connect_to_public_address

    class PublicHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> HTTPResponse:
            return self.do_open(PublicConnection, req)

    return urllib.request.build_opener(NoRedirectHandler, *((PublicHandler,) if only_public else ()))


def _connect_to_public_address(address: tuple[str, int], *args: Any, **more: Any) -> socket.socket:
    """Connects to a host; refuses one of this machine or of a private network."""
    connection = socket.create_connection(address, *args, **more)
    peer = connection.getpeername()[0]
    if ip_address(peer).is_global:
        return connection
    connection.close()
    raise Rejected(f"the webhook at {address[0][:80]} is in a private network: list it in RATCHET_WEBHOOKS")


def _post_json(url: str, body: bytes, signature: Mapping[str, str], only_public: bool) -> None:
    if not url.startswith(("http://", "https://")):
        raise Rejected(f"not a URL for a webhook: {url[:80]!r}")
    headers = {"Content-Type": "application/json", **signature}
    try:
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310  checked above
        with _make_opener(only_public).open(request, timeout=WEBHOOK_TIMEOUT):
            return
    except urllib.error.HTTPError as error:
        told = f"the webhook answered {error.code}"
        raise (
            Rejected(told) if 300 <= error.code < 500 and error.code not in (408, 429) else Unavailable(told)
        ) from error
    except urllib.error.URLError as error:  # the request was not sent completely
        raise Unavailable(f"the webhook cannot be reached: {format_one_line(str(error.reason), 200)}") from error
    except (ValueError, InvalidURL) as error:
        raise Rejected(f"not a URL for a webhook: {url[:80]!r}") from error
    except (OSError, HTTPException) as error:  # it may have arrived; a CRM recognises a repeated request by its key
        raise UnknownOutcome(f"the webhook did not answer: {format_one_line(error, 200)}") from error
