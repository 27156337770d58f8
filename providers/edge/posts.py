"""The two ways in which requests leave for a CRM: a Temporal task queue per cloudlet, or a webhook."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from http.client import HTTPException, InvalidURL

from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.service import RPCError

from domain.edge import messages as wire
from domain.edge.messages import Address, CrmRequest, CrmRequests
from domain.errors import Rejected, Unavailable, UnknownOutcome, brief

COMPANY = 0.002  # seconds that a first request waits for others to the same CRM: one task for all of them
MOST = 100
KEPT = timedelta(hours=1)  # how long a request waits for its CRM; the controller asks again before that
TAKEN = timedelta(seconds=10)
WEBHOOK_SECONDS = 10


@dataclass
class _Box:
    """Requests on their way to one CRM, and those who wait until they are sent."""

    waiting: list[CrmRequest] = field(default_factory=list)
    sent: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class QueueCrm:
    """Requests as tasks on the queue that the cloudlet's CRM polls. While some are on their way, the next gather."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._boxes: dict[str, _Box] = {}  # by queue: what goes next
        self._posting: dict[str, asyncio.Task[None]] = {}

    async def send(self, to: Address, requests: Sequence[CrmRequest]) -> None:
        queue = wire.crm_queue(to.cloudlet, to.version)
        box = self._boxes.setdefault(queue, _Box())
        box.waiting.extend(requests)
        if queue not in self._posting:
            self._posting[queue] = asyncio.create_task(self._post(queue))
        await asyncio.shield(box.sent)

    async def _post(self, queue: str) -> None:
        """One box after the other, until there is none."""
        await asyncio.sleep(COMPANY)
        try:
            while box := self._boxes.pop(queue, None):
                await self._post_box(queue, box)
        finally:
            del self._posting[queue]

    async def _post_box(self, queue: str, box: _Box) -> None:
        try:
            for start in range(0, len(box.waiting), MOST):
                await self._start(queue, box.waiting[start : start + MOST])
            box.sent.set_result(None)
        except RPCError as error:
            box.sent.set_exception(Unavailable(f"Temporal did not take the request: {brief(error.message, 200)}"))
            box.sent.exception()  # looked at, in case that nobody waits any more

    async def _start(self, queue: str, requests: list[CrmRequest]) -> None:
        await self._client.start_activity(
            wire.CRM_REQUESTS,
            CrmRequests(requests=requests),
            id=f"crm-{uuid.uuid4().hex}",
            task_queue=queue,
            schedule_to_close_timeout=KEPT,
            start_to_close_timeout=TAKEN,
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=5)),
            summary=f"{requests[0].verb} {requests[0].path}" + (f" and {len(requests) - 1} more" * (len(requests) > 1)),
        )


class WebhookCrm:
    """Requests as one JSON document to the cloudlet's URL. Any 2xx means that the CRM has them."""

    async def send(self, to: Address, requests: Sequence[CrmRequest]) -> None:
        body = CrmRequests(requests=list(requests)).model_dump_json().encode()
        await asyncio.to_thread(_post, to.url, body)


def _post(url: str, body: bytes) -> None:
    if not url.startswith(("http://", "https://")):
        raise Rejected(f"not a URL for a webhook: {url[:80]!r}")
    headers = {"Content-Type": "application/json"}
    try:
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310  checked above
        with urllib.request.urlopen(request, timeout=WEBHOOK_SECONDS):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        told = f"the webhook answered {error.code}"
        raise (
            Rejected(told) if 400 <= error.code < 500 and error.code not in (408, 429) else Unavailable(told)
        ) from error
    except urllib.error.URLError as error:  # before the whole request was out
        raise Unavailable(f"the webhook cannot be reached: {brief(str(error.reason), 200)}") from error
    except (ValueError, InvalidURL) as error:
        raise Rejected(f"not a URL for a webhook: {url[:80]!r}") from error
    except (OSError, HTTPException) as error:  # it may have the request; asked again, a CRM knows it by its key
        raise UnknownOutcome(f"the webhook did not answer: {brief(error, 200)}") from error
