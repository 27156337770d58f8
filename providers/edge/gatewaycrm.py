"""A CRM that reaches its controller over HTTP only: it polls a gateway for its orders, and posts its answers there."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.client import HTTPException
from typing import Any

import structlog

from domain.edge import messages
from domain.edge.messages import CrmOrders, CrmRequests
from domain.errors import Category, Refused
from providers.edge.controller import FIRST_PAUSE, LONGEST_PAUSE, ControllerClient
from providers.edge.crm import ReferenceCrm
from providers.edge.token import CrmToken

REQUEST_SECONDS = 20.0  # longer than a gateway lets a poll wait


class GatewayUnusable(Exception):
    """The gateway does not answer, or not with what was asked for. `final`: the same request is refused again."""

    def __init__(self, why: str, final: bool) -> None:
        super().__init__(why)
        self.final = final


class GatewayControllerClient(ControllerClient):
    """Sends a CRM's messages through a gateway, signed by its token, and repeated until it takes or refuses them."""

    def __init__(self, url: str, cloudlet: str, token: CrmToken) -> None:
        self._url = f"{url.rstrip('/')}/v1/crm/{cloudlet}"
        self._cloudlet = cloudlet
        self._token = token
        self._log = structlog.get_logger("crm").bind(cloudlet=cloudlet, gateway=url)

    async def send_connect(self, message: dict[str, Any]) -> None:
        await self._post_message(messages.CRM_CONNECT, self._cloudlet, message)

    async def send_answer(self, workflow_id: str, message: dict[str, Any]) -> None:
        await self._post_message(messages.CRM_RESPONSE, workflow_id, message)

    async def send_disconnect(self, notify_id: int) -> None:
        await self._post_message(messages.CRM_DISCONNECT, self._cloudlet, {"notify_id": notify_id})

    async def read_known_notify_id(self) -> int:
        """Returns the highest notify-id that the controller knows; 0 if no CRM is connected."""
        try:
            signed = self._sign_message(messages.CRM_POLL, self._cloudlet, {"at": _now()})
            answer = await self._post("notify-id", signed)
            return int(answer["notify_id"])
        except GatewayUnusable:
            return 0

    async def poll_requests(self, version: str, notify_id: int, received: int) -> CrmOrders:
        """Returns the next orders; raises GatewayUnusable."""
        message = {"version": version, "notify_id": notify_id, "received": received, "at": _now()}
        return CrmOrders.model_validate(
            await self._post("orders", self._sign_message(messages.CRM_POLL, self._cloudlet, message))
        )

    async def _post_message(self, signal: str, to: str, message: dict[str, Any]) -> None:
        signed = self._sign_message(signal, message.get("path", to), message)
        pause = FIRST_PAUSE
        while True:
            try:
                await self._post(f"messages/{signal}", {"to": to, "message": signed})
                return
            except GatewayUnusable as error:
                if error.final:
                    self._log.error("refused", signal=signal, why=str(error))
                    return
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _post(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(_post_json, f"{self._url}/{route}", body)


class GatewayCrm(ReferenceCrm):
    """The reference CRM without Temporal: a gateway takes its orders from the queue in its place."""

    _controller: GatewayControllerClient

    @asynccontextmanager
    async def _receive_requests(self) -> AsyncIterator[None]:
        polling = asyncio.create_task(self._poll_orders())
        try:
            yield
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)

    async def _poll_orders(self) -> None:
        received, pause, session = 0, FIRST_PAUSE, 0
        while True:
            try:
                orders = await self._controller.poll_requests(self._version, self.notify_id, received)
                pause = FIRST_PAUSE
            except GatewayUnusable as error:
                self._log.info("the gateway does not answer", why=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                received = 0  # another gateway, or one that was restarted, counts anew
                continue
            if orders.requests and orders.batch != received:
                await self.crm_requests(CrmRequests(requests=orders.requests))
            received = orders.batch
            self._handle_session_change(session, orders.session)
            session = orders.session

    def _handle_session_change(self, before: int, now: int) -> None:
        """Handles a change of the session: an open one acknowledges our connection, an ended one means reconnect."""
        if now and now == self.notify_id:
            self._acked.set()
            self._sessions = 1
        elif before == self.notify_id and before:
            self._sessions = 0
            self._start_background_task(self._reconnect_unless_resumed(before))


def _now() -> int:
    return time.time_ns() // 1_000


def _post_json(url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise Refused(Category.INVALID, f"not the URL of a gateway: {url[:80]!r}", "such as http://127.0.0.1:8787")
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310  checked above
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:  # noqa: S310
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except urllib.error.HTTPError as error:
        final = 400 <= error.code < 500 and error.code not in (404, 408, 409, 429)
        raise GatewayUnusable(f"{error.code}: {error.read()[:300].decode(errors='replace')}", final) from error
    except (OSError, HTTPException, ValueError) as error:
        raise GatewayUnusable(str(error), final=False) from error
