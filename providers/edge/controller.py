"""Sends a CRM's messages to the controller: signals to the waiting action, or to the cloudlet's link."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from domain.edge import messages
from domain.edge.budgets import READING_TASK_TIMEOUT
from domain.errors import Refused
from domain.wire import ACTIONS_QUEUE, companion_id
from providers.edge.token import CrmToken

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
_NO_WORKFLOW_CODES = (RPCStatusCode.NOT_FOUND,)
_FINAL_CODES = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


class ControllerClient:
    """Sends a CRM's signals, signed if it has a token, and repeated until Temporal accepts or refuses them."""

    def __init__(self, client: Client, cloudlet: str, token: CrmToken) -> None:
        self._client = client
        self._cloudlet = cloudlet
        self._token = token
        self._log = structlog.get_logger("crm").bind(cloudlet=cloudlet)

    async def send_connect(self, message: dict[str, Any]) -> None:
        """Tells the cloudlet's link workflow that its CRM has connected; starts the workflow if it does not run."""
        await self._signal_link(messages.CRM_CONNECT, self._sign_message(messages.CRM_CONNECT, self._cloudlet, message))

    async def _signal_link(self, signal: str, message: dict[str, Any]) -> bool:
        """Signals the link, and starts it with the signal if it does not run, so that no message is lost."""

        async def start() -> None:
            await self._client.start_workflow(
                messages.CLOUDLET_LINK,
                {"cloudlet": self._cloudlet},
                id=companion_id(self._cloudlet, messages.LINK_ROLE),
                task_queue=ACTIONS_QUEUE,
                task_timeout=READING_TASK_TIMEOUT,
                start_signal=signal,
                start_signal_args=[message],
                static_summary=f"connections of the CRM of {self._cloudlet}",
            )

        return await self._retry_until_accepted(start)

    async def read_known_notify_id(self) -> int:
        """Returns the highest notify-id that the controller knows; 0 if no CRM is connected."""
        link = self._client.get_workflow_handle(companion_id(self._cloudlet, messages.LINK_ROLE))
        try:
            state: dict[str, Any] = await link.query("state", rpc_timeout=None)
            return int(state["notify_id"])
        except RPCError:
            return 0

    async def send_answer(self, workflow_id: str, message: dict[str, Any]) -> None:
        """Sends an answer to its action; or to the link, if the action has ended or accepts no more signals."""
        signed = self._sign_message(messages.CRM_RESPONSE, message.get("path", workflow_id), message)
        if await self._signal_workflow(workflow_id, messages.CRM_RESPONSE, signed, full=False):
            return
        told = {"path": workflow_id, **signed}
        if not await self._signal_link(messages.CRM_RESPONSE, told):
            self._log.warning("no workflow received the message", about=told["path"], state=message["state"])

    def _sign_message(self, signal: str, path: str, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._token.sign_message(signal, path, message)
        except Refused as refused:  # the token file was damaged meanwhile: messages are ignored until it is repaired
            self._log.error("not signed", why=refused.message, hint=refused.hint)
            return message

    async def send_disconnect(self, notify_id: int) -> None:
        await self.send_signed_disconnect(
            self._sign_message(messages.CRM_DISCONNECT, self._cloudlet, {"notify_id": notify_id})
        )

    async def send_signed_disconnect(self, message: dict[str, Any]) -> None:
        await self._signal_workflow(companion_id(self._cloudlet, messages.LINK_ROLE), messages.CRM_DISCONNECT, message)

    async def _signal_workflow(self, workflow_id: str, name: str, message: dict[str, Any], full: bool = True) -> bool:
        async def signal() -> None:
            await self._client.get_workflow_handle(workflow_id).signal(name, message)

        return await self._retry_until_accepted(signal, full)

    async def _retry_until_accepted(self, call: Any, full: bool = True) -> bool:
        """Repeats a call until Temporal accepts it. Returns False if nobody receives it, or the receiver is full."""
        pause = FIRST_PAUSE
        while True:
            try:
                await call()
                return True
            except RPCError as error:
                if error.status in _NO_WORKFLOW_CODES:
                    return False
                if messages.SIGNAL_LIMIT_ERROR in error.message and not full:
                    return False
                if error.status in _FINAL_CODES and messages.SIGNAL_LIMIT_ERROR not in error.message:
                    self._log.error("refused", status=error.status.name, why=error.message)
                    return False
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
