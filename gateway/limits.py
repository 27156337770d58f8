"""Limits on requests, before any route sees them: size, time, and pages of other sites."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.problems import answer

MAX_BODY = 256 * 1024
BODY_SECONDS = 10.0
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class TooLarge(Exception):
    """The body is larger than MAX_BODY."""


class RequestLimits:
    """ASGI middleware. A browser on this machine may show any site: its pages must not command the gateway."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._hosts = LOOPBACK | hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        origin = headers.get("origin")
        if host not in self._hosts:
            refused = answer(
                HTTPStatus.MISDIRECTED_REQUEST,
                "unknown-host",
                f"this gateway does not answer for the host {host[:100]!r}",
                "add the name to RATCHET_GATEWAY_HOSTS",
            )
        elif origin and urlsplit(origin).netloc != headers.get("host"):
            refused = answer(HTTPStatus.FORBIDDEN, "foreign-origin", "requests of other sites' pages are refused")
        elif (length := headers.get("content-length", "0")).isdigit() and int(length) > MAX_BODY:
            refused = _too_large()
        else:
            await self._limited(scope, receive, send)
            return
        await refused(scope, receive, send)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, _bounded(receive), watched)
        except TooLarge:
            if started:
                raise
            await _too_large()(scope, receive, send)
        except TimeoutError:
            if started:
                raise
            slow = answer(HTTPStatus.REQUEST_TIMEOUT, "slow-body", f"the body took more than {BODY_SECONDS:g} s")
            await slow(scope, receive, send)


def _bounded(receive: Receive) -> Receive:
    """Receive a body within its size and time; what comes after it, such as a disconnect, may take any time."""
    size, complete = 0, False
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def bounded() -> Message:
        nonlocal size, complete
        if complete:
            return await receive()
        async with asyncio.timeout_at(deadline):
            message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise TooLarge
        complete = not message.get("more_body", False)
        return message

    return bounded


def _too_large() -> JSONResponse:
    return answer(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", f"a body may have {MAX_BODY // 1024} KiB", "send less at once"
    )
