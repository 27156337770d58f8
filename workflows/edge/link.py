"""The link of a cloudlet: the workflow to which its CRM connects, and that gets the answers no action awaits.

It runs as long as a CRM is connected, and takes any number of messages: it continues as new before Temporal's signal
limit, with its open connections and unread messages.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from domain import registry
    from domain.edge import messages
    from domain.edge.budgets import READING_TASK_TIMEOUT, IgnoredMessageBudget
    from domain.edge.messages import (
        ConnectionLost,
        CrmAddress,
        CrmConnect,
        CrmDisconnect,
        CrmResponse,
        ReceivedSignal,
        Reconnected,
        parse_message,
    )
    from domain.edge.reports import ConnectionDecision, ConnectionReply
    from domain.edge.tables import CLOUDLET
    from domain.errors import Refused
    from domain.model import FrozenModel
    from domain.paths import is_at_or_below, kind_of, parent_of
    from domain.statetable import NO_STATUS
    from domain.wire import REFUSED_ERROR_TYPE, companion_id
    from workflows.edge import calls
    from workflows.edge.floodlimit import FloodLimitedWorkflow
    from workflows.edge.sessions import CrmSessions

MAX_UNREAD = 1_000  # unread messages; further ones are counted, not queued
SIGNAL_LIMIT_ERROR_TYPE = "SignalCountLimitExceeded"  # Temporal's error type: the run has reached its signal limit
MAX_CARRIED_BYTES = 1_000_000  # characters of unread messages that a link carries over when it continues as new

CrmSignal = CrmConnect | CrmDisconnect | CrmResponse
_MESSAGE_TYPE_OF_SIGNAL: dict[str, type[CrmSignal]] = {
    messages.CRM_CONNECT: CrmConnect,
    messages.CRM_DISCONNECT: CrmDisconnect,
    messages.CRM_RESPONSE: CrmResponse,
}


class LinkState(FrozenModel):
    """The answer of the `state` query; also the input of a link that continues as new."""

    cloudlet: str
    notify_id: int = 0
    open: list[CrmAddress] = []
    mail: list[ReceivedSignal] = []
    budget: IgnoredMessageBudget = IgnoredMessageBudget()


@workflow.defn(name=messages.CLOUDLET_LINK)
class CloudletLink(FloodLimitedWorkflow):
    """The companion of a cloudlet: its CRM connects here, and answers that no action awaits come here."""

    @workflow.init
    def __init__(self, state: LinkState) -> None:
        super().__init__(state.cloudlet, state.budget, "CRM")
        self._notify_id = state.notify_id
        self._unread: deque[ReceivedSignal] = deque(state.mail)
        self._waiting = {_text_of_signal(letter) for letter in state.mail}
        self._pages: dict[int, CrmConnect] = {}  # of a connection that is not complete yet
        self._sessions = CrmSessions(
            state.cloudlet, lambda gone: self._unread.append(ReceivedSignal(message=gone.model_dump()))
        )

    @workflow.run
    async def run(self, state: LinkState) -> None:
        _check_cloudlet_id(self._path)
        carried = bool(workflow.info().continued_run_id)
        for address in state.open if carried else await self._confirm_connections(state.open):
            self._sessions.open_session(address, acked=True)
        while self._unread or self._to_ignore or self._sessions.addresses or not workflow.all_handlers_finished():
            await workflow.wait_condition(
                lambda: (
                    bool(self._unread or self._to_ignore)
                    or (not self._sessions.addresses and workflow.all_handlers_finished())
                    or self._must_continue_as_new()
                )
            )
            await self._flush_ignored_messages()
            if self._unread:
                letter = self._unread.popleft()
                self._waiting.discard(_text_of_signal(letter))
                await self._handle_message(_parse_signal(letter))
            if (
                self._must_continue_as_new()
                and sum(len(_text_of_signal(letter)) for letter in self._unread) <= MAX_CARRIED_BYTES
            ):
                await self._continue_as_new()
        await self._record_ignored_count(NO_STATUS)

    async def _confirm_connections(self, claimed: list[CrmAddress]) -> list[CrmAddress]:
        """Returns the connections that the inventory has: whoever may start workflows can claim any, and lose it."""
        found = [await calls.confirm_reconnection(self._path, [address.notify_id]) for address in claimed]
        return [news.address for news in found if news]

    async def _continue_as_new(self) -> None:
        """Continues as new, unless more comes meanwhile.

        Incomplete pages are dropped: a CRM that is not acknowledged connects again.
        """
        await self._flush_ignored_messages()
        await self._record_ignored_count(NO_STATUS)
        if self._to_ignore or not workflow.all_handlers_finished():
            return  # more came meanwhile
        state = self.state().model_copy(update={"mail": list(self._unread), "budget": self._budget})
        workflow.continue_as_new(state, task_timeout=READING_TASK_TIMEOUT)

    @workflow.query
    def state(self) -> LinkState:
        """Query: returns the open connections. A CRM picks a higher notify-id than the one here."""
        return LinkState(cloudlet=self._path, notify_id=self._notify_id, open=self._sessions.addresses)

    @workflow.signal(name=messages.CRM_CONNECT, description="A CRM has started: notify_id, version, instances.")
    def crm_connect(self, raw: Any = None) -> None:
        self._enqueue_received_signal(messages.CRM_CONNECT, raw)

    @workflow.signal(name=messages.CRM_DISCONNECT, description="A CRM says goodbye: notify_id.")
    def crm_disconnect(self, raw: Any = None) -> None:
        self._enqueue_received_signal(messages.CRM_DISCONNECT, raw)

    @workflow.signal(
        name=messages.CRM_RESPONSE, description="An answer about the cloudlet, or one that no action awaits."
    )
    def crm_response(self, raw: Any = None) -> None:
        self._enqueue_received_signal(messages.CRM_RESPONSE, raw)

    def _enqueue_received_signal(self, signal: str, raw: object) -> None:
        """Queues a message to be read, unless it is unreadable, a repetition, or one too many."""
        self._heard += 1
        if not isinstance(raw, dict) and self._is_budget_spent():
            self._spend_budget()  # junk in a flood: not even parsed
            return
        message = parse_message(_MESSAGE_TYPE_OF_SIGNAL[signal], raw)
        if isinstance(message, str):
            self._queue_ignored_message(NO_STATUS, message)
            return
        letter = ReceivedSignal(signal=signal, message=message.fields_as_received)
        room = MAX_UNREAD if signal == messages.CRM_RESPONSE else 2 * MAX_UNREAD
        if (text := _text_of_signal(letter)) in self._waiting or len(self._unread) >= room:
            why = "it waits already" if text in self._waiting else f"{len(self._unread)} messages wait already"
            self._queue_ignored_message(getattr(message, "state", signal), why)
            return
        self._waiting.add(text)
        self._unread.append(letter)

    async def _handle_message(self, message: CrmSignal) -> None:
        if isinstance(message, CrmConnect):
            await self._handle_connect(message)
        elif isinstance(message, CrmDisconnect):
            await self._handle_disconnect(message)
        elif message.path in (None, self._path):
            await self._handle_answer(message)
        else:
            await self._forward_answer(message)

    async def _handle_connect(self, message: CrmConnect) -> None:
        if self._sessions.address_of(message.notify_id):
            why = f"notify-id {message.notify_id} is not newer than {self._notify_id}"
            self._queue_ignored_message(messages.CRM_CONNECT, why)
            return
        if any(not page.is_same_connection(message) for page in self._pages.values()):
            self._pages = {}
        self._pages[message.page] = message
        if len(self._pages) < message.of:
            return
        pages, self._pages = [self._pages[number] for number in sorted(self._pages)], {}
        connected = await calls.report_crm_connection(self._path, pages, kept=not self._is_budget_spent())
        self._notify_id = max(self._notify_id, connected.current)  # for a CRM that lost its state
        if connected.standing is ConnectionDecision.REFUSED or connected.address is None:
            self._spend_budget()
            workflow.logger.info("connection %s refused: %s", message.notify_id, connected.why)
            return
        await self._notify_waiting_actions(connected, pages)
        self._sessions.open_session(connected.address)

    async def _notify_waiting_actions(self, connected: ConnectionReply, pages: list[CrmConnect]) -> None:
        """Tells the waiting actions that their CRM has a new connection, and which of their objects it has."""
        assert connected.address
        if connected.standing is ConnectionDecision.OWNED:
            await self._signal_workflow(self._path, messages.RECONNECTED, Reconnected(address=connected.address))
        there = [item for page in pages for item in page.instances.items()]
        for owner in connected.running:
            mine = {path: seen for path, seen in there if is_at_or_below(path, owner)}
            await self._signal_workflow(
                owner, messages.RECONNECTED, Reconnected(address=connected.address, reported=mine)
            )

    async def _handle_disconnect(self, message: CrmDisconnect) -> None:
        address = self._sessions.address_of(message.notify_id)
        answer = await calls.report_crm_disconnect(self._path, message, kept=not self._is_budget_spent())
        if answer.ignored:
            self._spend_budget()
        if answer.refused:  # an unproven disconnect
            return
        self._sessions.close_session(message.notify_id)
        if answer.owner:
            version = address.version if address else ""
            await self._signal_workflow(
                answer.owner, messages.CONNECTION_LOST, ConnectionLost(notify_id=message.notify_id, version=version)
            )

    async def _handle_answer(self, message: CrmResponse) -> None:
        answer = await calls.report_crm_answer(self._path, message, kept=not self._is_budget_spent())
        if answer.owner and not await self._signal_workflow(answer.owner, messages.CRM_RESPONSE, message):
            answer = await calls.report_crm_answer(self._path, message)  # it has ended: apply it
        if answer.ignored:
            self._spend_budget()
        if answer.everything:
            try:
                await calls.send_all_data(answer.everything)
            except ActivityError as error:
                workflow.logger.warning("all data could not be sent: %s", error.cause)

    async def _forward_answer(self, message: CrmResponse) -> None:
        """Sends an answer about an instance to its action if one runs, else records it in the history."""
        path = str(message.path)
        if not path.startswith(f"{self._path}:"):
            reason = f"{path[:100]} is not on this cloudlet"
            self._queue_ignored_message(message.state, reason)
            return
        above = str(parent_of(path))  # of an app its cluster, whose action may be deleting the app
        for owner in (path, above) if above != self._path else (path,):
            if await self._signal_workflow(owner, messages.CRM_RESPONSE, message):
                break
        else:
            self._queue_ignored_message(message.state, "no action is running on it", path)

    async def _signal_workflow(self, workflow_id: str, name: str, message: FrozenModel | CrmResponse) -> bool:
        """Signals a running workflow; returns False if there is none. A CRM's answer is forwarded as received.

        An action that has reached Temporal's signal limit gets the message by an update.
        """
        as_it_came = (message.fields_as_received if isinstance(message, CrmResponse) else None) or message.model_dump(
            mode="json"
        )
        try:
            await workflow.get_external_workflow_handle(workflow_id).signal(name, as_it_came)
        except FailureError as error:
            if getattr(error, "type", "") != SIGNAL_LIMIT_ERROR_TYPE:
                return False
            why = await calls.deliver_by_update(workflow_id, ReceivedSignal(signal=name, message=as_it_came))
            if why:
                self._queue_ignored_message(name, why, workflow_id)
        return True


def _parse_signal(letter: ReceivedSignal) -> CrmSignal:
    if not letter.signal:
        return CrmDisconnect.model_validate(letter.message)
    message = parse_message(_MESSAGE_TYPE_OF_SIGNAL[letter.signal], letter.message)
    assert not isinstance(message, str)  # it was parsed when it arrived
    return message


def _text_of_signal(letter: ReceivedSignal) -> str:
    return letter.signal + json.dumps(letter.message, sort_keys=True, default=str)


def _check_cloudlet_id(cloudlet: str) -> None:
    """Fails a link at once whose workflow ID is not that of a cloudlet, instead of letting it wait for ever."""
    try:
        registry.kind_at(cloudlet)
    except Refused as refused:
        raise ApplicationError(refused.message, type=REFUSED_ERROR_TYPE, non_retryable=True) from refused
    if workflow.info().workflow_id != companion_id(cloudlet, messages.LINK_ROLE) or kind_of(cloudlet) != CLOUDLET.kind:
        raise ApplicationError(
            "a link's ID is the path of a cloudlet and ::link", type=REFUSED_ERROR_TYPE, non_retryable=True
        )
