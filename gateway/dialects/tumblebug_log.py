"""Tumblebug's request ids: one on every answer, and what became of each request, for whoever sent it."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from domain.errors import Category, Refused
from gateway.guard import add_headers

MAX_REQUESTS = 1_000  # remembered for GET /request/ID
_HEADER = "X-Request-Id"


@dataclass
class RequestLog:
    """What became of requests, by caller and id; as in the source system, it ends with the process.

    A caller sees its own only: an answer may hold what another one must not read.
    """

    _entries: OrderedDict[tuple[str, str], dict[str, Any]] = field(default_factory=OrderedDict)

    def begin_request(self, caller: str, request_id: str, method: str, url: str) -> dict[str, Any]:
        if (known := self.find_request(caller, request_id)) and known["status"] == "Handling":
            raise Refused(Category.CONFLICT, f"the {_HEADER} {request_id[:80]} is in use", "take another one")
        entry = {"status": "Handling", "startTime": _now(), "requestInfo": {"method": method, "url": url}}
        self._entries[caller, request_id] = entry
        self._entries.move_to_end((caller, request_id))
        while len(self._entries) > MAX_REQUESTS:
            self._entries.popitem(last=False)
        return entry

    def find_request(self, caller: str, request_id: str) -> dict[str, Any] | None:
        return self._entries.get((caller, request_id))

    def list_requests(self, caller: str) -> list[dict[str, Any]]:
        return [entry for (owner, _), entry in self._entries.items() if owner == caller]


def record_answer(entry: dict[str, Any], answer: Any) -> None:
    """Records that a request succeeded."""
    entry |= {"status": "Success", "endTime": _now(), "responseData": answer}


def record_error(entry: dict[str, Any], text: str) -> None:
    """Records that a request failed."""
    entry |= {"status": "Error", "endTime": _now(), "errorResponse": text}


class RequestIdMiddleware:
    """ASGI middleware: gives a request an id if it has none, and every answer the id of its request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = Headers(scope=scope).get(_HEADER) or uuid.uuid4().hex
        state = {**scope.get("state", {}), "request_id": request_id}
        await self._app({**scope, "state": state}, receive, add_headers(send, {_HEADER: request_id}))


def _now() -> str:
    return datetime.now(UTC).isoformat()
