"""The link of a cloudlet: the one place where its CRM connects, and where answers go that no action awaits.

It lives as long as a CRM is connected. The connection itself is an activity on the CRM's own queue that goes on as long
as the CRM does: that it began is the controller's ack, that it stops beating is the disconnect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from domain import registry
    from domain.edge import messages as wire
    from domain.edge.facts import Connected, Standing
    from domain.edge.messages import (
        Address,
        CrmConnect,
        CrmDisconnect,
        CrmRequest,
        CrmResponse,
        Ignored,
        Lost,
        Reconnected,
        Verb,
        understood,
    )
    from domain.edge.tables import CLOUDLET
    from domain.errors import Refused, brief
    from domain.model import Model
    from domain.paths import kind_of
    from domain.wire import REFUSED, companion
    from workflows.edge import calls
    from workflows.shield import Informed

BEAT = timedelta(seconds=10)  # a CRM that has not been heard of for so long is gone
TAKE_UP = timedelta(seconds=30)  # for the CRM to take up its session
FOR_EVER = timedelta(days=3650)

Fact = CrmConnect | CrmDisconnect | CrmResponse | str


class LinkState(Model):
    """What the `state` query answers; and what a link that begins anew is told."""

    cloudlet: str
    notify_id: int = 0
    open: list[Address] = []


@workflow.defn(name=wire.CLOUDLET_LINK)
class CloudletLink(Informed):
    """The companion of a cloudlet: its CRM connects here, and answers that no action awaits go here."""

    OUTLIVES_BUILDS = True

    @workflow.init
    def __init__(self, state: LinkState) -> None:
        self._cloudlet = state.cloudlet
        self._notify_id = state.notify_id
        self._mail: deque[Fact] = deque()
        self._sessions: dict[int, asyncio.Task[None]] = {}
        self._open: dict[int, Address] = {}
        self._handed = state.open  # connections of the run before: without a session until they connect again

    @workflow.run
    async def run(self, state: LinkState) -> None:
        _check(self._cloudlet)
        for address in self._handed:
            self._mail.append(CrmDisconnect(notify_id=address.notify_id, reason="the link began anew"))
        while True:
            await workflow.wait_condition(lambda: bool(self._mail) or not self._open)
            while self._mail:
                await self._handle(self._mail.popleft())
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(
                    LinkState(cloudlet=self._cloudlet, notify_id=self._notify_id, open=list(self._open.values()))
                )
            if not self._open and not self._mail:
                return

    @workflow.query
    def state(self) -> LinkState:
        """Who is connected. A CRM picks a higher notify-id than this one."""
        return LinkState(cloudlet=self._cloudlet, notify_id=self._notify_id, open=list(self._open.values()))

    @workflow.signal(name=wire.CRM_CONNECT, description="A CRM has started: notify_id, version, instances.")
    def crm_connect(self, raw: Any = None) -> None:
        self._put(CrmConnect, raw)

    @workflow.signal(name=wire.CRM_DISCONNECT, description="A CRM says goodbye: notify_id.")
    def crm_disconnect(self, raw: Any = None) -> None:
        self._put(CrmDisconnect, raw)

    @workflow.signal(name=wire.CRM_RESPONSE, description="An answer about the cloudlet, or one that no action awaits.")
    def crm_response(self, raw: Any = None) -> None:
        self._put(CrmResponse, raw)

    def _put(self, kind: type[CrmConnect] | type[CrmDisconnect] | type[CrmResponse], raw: object) -> None:
        self._mail.append(understood(kind, raw))

    async def _handle(self, said: Fact) -> None:
        if isinstance(said, str):
            await calls.ignore(Ignored(path=self._cloudlet, state="?", reason=said))
        elif isinstance(said, CrmConnect):
            await self._connect(said)
        elif isinstance(said, CrmDisconnect):
            await self._lose(said)
        elif said.path in (None, self._cloudlet):
            await self._answer(said)
        else:
            await self._pass_on(said)

    async def _connect(self, said: CrmConnect) -> None:
        found = await calls.connected(self._cloudlet, said)
        self._notify_id = max(self._notify_id, found.current)  # a CRM that lost its memory learns from it
        if found.standing is Standing.REFUSED or found.address is None:
            workflow.logger.info("connection %s refused: %s", said.notify_id, found.why)
            return
        await self._tell_actions(found, said)
        await self._open_session(found.address)

    async def _tell_actions(self, found: Connected, said: CrmConnect) -> None:
        """Whoever waits for this CRM hears first that it is another connection now, and what it has."""
        assert found.address
        owners = [*([self._cloudlet] if found.standing is Standing.OWNED else []), *found.running]
        for owner in owners:
            mine = {path: seen for path, seen in said.instances.items() if f"{path}:".startswith(f"{owner}:")}
            await self._signal(owner, wire.RECONNECTED, Reconnected(address=found.address, reported=mine))

    async def _open_session(self, address: Address) -> None:
        self._open[address.notify_id] = address
        for notify_id in [each for each, old in self._open.items() if _replaced(old, address)]:
            self._close(notify_id)  # the same CRM, started again
        if address.transport == "queue":
            self._sessions[address.notify_id] = asyncio.create_task(self._session(address))
            return
        try:
            await calls.send(address, CrmRequest(path=self._cloudlet, verb=Verb.ACK, **address.connection()))
        except ActivityError as error:
            why = brief(error.cause or error)
            self._mail.append(CrmDisconnect(notify_id=address.notify_id, reason=f"not reached: {why}"))

    async def _session(self, address: Address) -> None:
        try:
            reason: str = await workflow.execute_activity(
                wire.CRM_SESSION,
                address.notify_id,
                result_type=str,
                task_queue=wire.crm_queue(self._cloudlet, address.version),
                schedule_to_start_timeout=TAKE_UP,
                start_to_close_timeout=FOR_EVER,
                heartbeat_timeout=BEAT,
                retry_policy=RetryPolicy(maximum_attempts=1),
                cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
                summary=f"connection {address.notify_id} of {address.version}",
            )
        except ActivityError as error:
            reason = f"its CRM is gone: {brief(error.cause or error, 100)}"
        self._mail.append(CrmDisconnect(notify_id=address.notify_id, reason=reason))

    def _close(self, notify_id: int) -> None:
        self._open.pop(notify_id, None)
        if session := self._sessions.pop(notify_id, None):
            session.cancel()

    async def _lose(self, said: CrmDisconnect) -> None:
        address = self._open.get(said.notify_id)
        if said.raw and workflow.patched("goodbye-is-proven"):
            told = await calls.lost(self._cloudlet, said)
            if told.refused:
                return
            self._close(said.notify_id)
        else:
            self._close(said.notify_id)
            told = await calls.lost(self._cloudlet, said)
        if told.owner:
            version = address.version if address else ""
            await self._signal(told.owner, wire.CONNECTION_LOST, Lost(notify_id=said.notify_id, version=version))

    async def _answer(self, said: CrmResponse) -> None:
        told = await calls.answered(self._cloudlet, said)
        if told.owner:
            await self._signal(told.owner, wire.CRM_RESPONSE, said)
        if told.everything:
            try:
                await calls.everything(told.everything)
            except ActivityError as error:
                workflow.logger.warning("all data could not be sent: %s", error.cause)

    async def _pass_on(self, said: CrmResponse) -> None:
        """An answer about an instance that came here: to its action if one runs, else into the history."""
        path = str(said.path)
        if not path.startswith(f"{self._cloudlet}:"):
            reason = f"{path[:100]} is not on this cloudlet"
            await calls.ignore(Ignored(path=self._cloudlet, state=said.state, reason=reason))
        elif not await self._signal(path, wire.CRM_RESPONSE, said):
            await calls.ignore(Ignored(path=path, state=said.state, reason="no action is running on it"))

    async def _signal(self, workflow_id: str, name: str, message: Model | CrmResponse) -> bool:
        """Never starts anything: to who is not there it is not delivered. An answer goes on as it came."""
        as_it_came = message.raw if isinstance(message, CrmResponse) else None
        try:
            await workflow.get_external_workflow_handle(workflow_id).signal(name, as_it_came or message)
        except FailureError:
            return False
        return True


def _check(cloudlet: str) -> None:
    """A link that is none ends at once, instead of waiting for ever."""
    try:
        registry.kind_at(cloudlet)
    except Refused as refused:
        raise ApplicationError(refused.message, type=REFUSED, non_retryable=True) from refused
    if workflow.info().workflow_id != companion(cloudlet, wire.LINK) or kind_of(cloudlet) != CLOUDLET.kind:
        raise ApplicationError("a link's ID is the path of a cloudlet and ::link", type=REFUSED, non_retryable=True)


def _replaced(old: Address, new: Address) -> bool:
    return old.version == new.version and old.notify_id < new.notify_id
