"""Limits on requests, before any route sees them: size, time, and pages of other sites."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.problems import problem_response

MAX_BODY_BYTES = 256 * 1024
BODY_SECONDS = 10.0
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class RequestGuard:
    """ASGI middleware. A browser on this machine may show any site: its pages must not command the gateway."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], origins: frozenset[str]) -> None:
        self._app = app
        self._hosts = LOOPBACK_HOSTS | hosts
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        origin = headers.get("origin")
        if host not in self._hosts:
            refused = problem_response(
                HTTPStatus.MISDIRECTED_REQUEST,
                "unknown-host",
                f"this gateway does not answer for the host {host[:100]!r}",
                "add the name to RATCHET_GATEWAY_HOSTS",
            )
        elif origin in self._origins and origin:
            await self._answer_cross_origin(scope, receive, send, origin)
            return
        elif origin and urlsplit(origin).netloc != headers.get("host"):
            refused = problem_response(
                HTTPStatus.FORBIDDEN, "foreign-origin", "requests of other sites' pages are refused"
            )
        else:
            await self._pass_bounded_body(scope, receive, send)
            return
        await refused(scope, receive, send)

    async def _answer_cross_origin(self, scope: Scope, receive: Receive, send: Send, origin: str) -> None:
        """Answer a page of a site that may ask: its browser wants to be told so, and asks before it sends."""
        allowed = {"Access-Control-Allow-Origin": origin, "Vary": "Origin", "Access-Control-Allow-Credentials": "true"}
        allowed["Access-Control-Expose-Headers"] = "X-Request-Id"
        if scope["method"] == "OPTIONS":
            allowed["Access-Control-Allow-Methods"] = "GET, POST, PUT, DELETE"
            allowed["Access-Control-Allow-Headers"] = "Authorization, Content-Type, X-Request-Id"
            await Response(status_code=HTTPStatus.NO_CONTENT, headers=allowed)(scope, receive, send)
            return
        await self._pass_bounded_body(scope, receive, add_headers(send, allowed))

    async def _pass_bounded_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a body of bounded size and time. What broke a bound is answered by us.

        Whoever reads the body turns errors into answers of its own, which are dropped.
        """
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY_BYTES:
            await _too_large_response()(scope, receive, send)
            return
        body = BoundedBody(receive)

        async def send_unless_refused(message: Message) -> None:
            if body.refusal is None:
                await send(message)

        with suppress(BodyRefused):
            await self._app(scope, body.receive, send_unless_refused)
        if body.refusal:
            await body.refusal(scope, receive, send)


def add_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Returns what sends an answer with these headers."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return send_with_headers


class BodyRefused(Exception):
    """The body is too large or too slow."""


class BoundedBody:
    """Receives a body within its size and time; what comes after it, such as a disconnect, may take any time."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._size = 0
        self._complete = False
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        self.refusal: JSONResponse | None = None

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            why = f"the body took more than {BODY_SECONDS:g} s"
            self.refusal = problem_response(HTTPStatus.REQUEST_TIMEOUT, "slow-body", why)
            raise BodyRefused from None
        self._size += len(message.get("body", b""))
        if self._size > MAX_BODY_BYTES:
            self.refusal = _too_large_response()
            raise BodyRefused
        self._complete = not message.get("more_body", False)
        return message


def _too_large_response() -> JSONResponse:
    return problem_response(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "too-large",
        f"a body may have {MAX_BODY_BYTES // 1024} KiB",
        "send less at once",
    )
