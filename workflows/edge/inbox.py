"""The inbox of every edge action: a CRM's answers and news of its connection, sorted by object.

Signal handlers only append messages; the action reads and interprets them one by one. Messages that nobody will read
are recorded in the history as ignored.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import deque
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.signatures import why_unproven
    from domain.edge import messages
    from domain.edge.budgets import REPEAT_ACCEPTED_AFTER
    from domain.edge.messages import (
        ConnectionLost,
        CrmAddress,
        CrmResponse,
        IgnoredMessage,
        ReceivedSignal,
        Reconnected,
        parse_message,
    )
    from domain.edge.proofs import text_to_sign
    from domain.errors import format_one_line
    from domain.model import FrozenModel, Grant, Request, WorkReport
    from domain.paths import is_at_or_below
    from domain.statetable import NO_STATUS
    from workflows.action import ActionWorkflow
    from workflows.edge import calls
    from workflows.floods import TaskPace

CrmNews = CrmResponse | Reconnected | ConnectionLost

MAX_IGNORED = 50  # ignored messages that one action records; in a flood the rest are dropped
ENDED_MESSAGE = "the action has ended"
UNHEARD_ERROR_TYPE = "Unheard"


_NEWS_TYPE_OF_SIGNAL: dict[str, type[FrozenModel]] = {
    messages.RECONNECTED: Reconnected,
    messages.CONNECTION_LOST: ConnectionLost,
}


class CrmInboxAction(ActionWorkflow):
    """Base of the actions that receive a CRM's messages."""

    def __init__(self) -> None:
        super().__init__()
        self._unread: dict[str, deque[CrmNews]] = {}
        self._latest: CrmAddress | None = None
        self._ignored = 0
        self._over = False
        self._key = ""  # the CRM's public key; if set, answers must be signed
        self._epoch = 0
        self._unasked = False  # may a CRM send messages that answer no request?
        self._pace = TaskPace()
        self._claims: list[Reconnected] = []  # reconnections that are to be confirmed
        self._handed_in: dict[str, datetime] = {}  # messages accepted by update, and when

    @abstractmethod
    async def perform_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        """Does the work, as `perform_work`. The inbox is closed after it."""

    async def settle_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        """After the work failed or was cancelled, as `settle_work`. The inbox is closed
        after it, whatever comes of it.
        """
        return WorkReport()

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        done = await self.perform_with_crm(request, grant)
        await self.close_inbox()
        return done

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        try:
            return await self.settle_with_crm(request, grant)
        finally:
            await self.close_inbox()

    @workflow.signal(name=messages.CRM_RESPONSE, description="A CRM's answer: state, errors, notify_id, progress.")
    async def crm_response(self, raw: Any = None) -> None:
        await self._wait_for_confirmation()
        message = parse_message(CrmResponse, raw)
        own = workflow.info().workflow_id
        if isinstance(message, str):
            await self.ignore_message(own, NO_STATUS, message)
            return
        path = message.path or own
        if not is_at_or_below(path, own):
            await self.ignore_message(own, message.state, f"it is about {path}, which this action does not change")
        elif self._over or self._ended:
            await self.handle_late_answer(path, message)
        else:
            self.unread_messages(path).append(message)

    @workflow.signal(name=messages.RECONNECTED, description="The CRM has connected again, with a new notify-id.")
    async def reconnected(self, told: Reconnected) -> None:
        if not self._key:
            self._deliver_reconnection(told)
            return
        self._claims.append(told)
        if len(self._claims) > 1:  # the handler of the first one confirms them all
            return
        while claims := list(self._claims):
            for news in await self._filter_confirmed_reconnections(claims):
                self._deliver_reconnection(news)
            del self._claims[: len(claims)]

    async def _wait_for_confirmation(self) -> None:
        """Waits while reconnections are confirmed: what a CRM says on a connection is read after its beginning."""
        if self._claims:
            await workflow.wait_condition(lambda: not self._claims)

    def _deliver_reconnection(self, news: Reconnected, first: bool = False) -> None:
        self._latest = news.address
        for path in {workflow.info().workflow_id: None, **self._unread}:
            box = self.unread_messages(path)
            (box.appendleft if first else box.append)(news)

    @workflow.signal(name=messages.CONNECTION_LOST, description="A CRM's connection is gone.")
    async def connection_lost(self, news: ConnectionLost) -> None:
        await self._wait_for_confirmation()
        self.unread_messages(workflow.info().workflow_id).append(news)

    @workflow.update(
        name=messages.HEAR_UPDATE, description="A message of the link, when this run may hear no more signals."
    )
    async def hear(self, letter: ReceivedSignal) -> None:
        self._handed_in[_content_of_signal(letter)] = workflow.now()
        if letter.signal == messages.CRM_RESPONSE:
            await self.crm_response(letter.message)
        elif letter.signal == messages.RECONNECTED:
            await self.reconnected(Reconnected.model_validate(letter.message))
        else:
            await self.connection_lost(ConnectionLost.model_validate(letter.message))

    @hear.validator
    def _validate_hear(self, letter: ReceivedSignal) -> None:
        """Refuses updates before Temporal counts them: in a flood, one of each kind is accepted now and then."""
        if why := self._why_not_accepted(letter):
            raise ApplicationError(why, type=UNHEARD_ERROR_TYPE, non_retryable=True)

    def _why_not_accepted(self, letter: ReceivedSignal) -> str:
        """Returns why a message is not accepted; empty if it is."""
        if self._over or self._ended:
            return ENDED_MESSAGE
        last = self._handed_in.get(_content_of_signal(letter))
        if last and (workflow.now() - last).total_seconds() < REPEAT_ACCEPTED_AFTER:
            return f"it was said within the last {REPEAT_ACCEPTED_AFTER:g} s"
        if letter.signal == messages.CRM_RESPONSE:
            message = parse_message(CrmResponse, letter.message)
            return (
                message
                if isinstance(message, str)
                else self._why_untrusted(message.path or workflow.info().workflow_id, message)
            )
        if letter.signal not in _NEWS_TYPE_OF_SIGNAL:
            return f"no action hears {letter.signal[:40]!a}"
        try:
            _NEWS_TYPE_OF_SIGNAL[letter.signal].model_validate(letter.message)
        except ValidationError as error:
            return format_one_line(f"not understood: {error}")
        return ""

    async def require_proof(self, key: str, epoch: int, unasked: bool = False) -> None:
        """Requires signed answers about this action from now on. Earlier messages are checked again."""
        if not key:
            return
        self._key, self._epoch, self._unasked, self._latest = key, epoch, unasked, None
        claims = [news for box in self._unread.values() for news in box if isinstance(news, Reconnected)]
        for box in self._unread.values():
            answers = [news for news in box if not isinstance(news, Reconnected)]
            box.clear()
            box.extend(answers)
        for news in await self._filter_confirmed_reconnections(claims):
            self._deliver_reconnection(news, first=True)

    async def _filter_confirmed_reconnections(self, claims: list[Reconnected]) -> list[Reconnected]:
        """Asks the inventory which of these reconnections are true, as anybody may send that signal."""
        own, claimed = workflow.info().workflow_id, list(dict.fromkeys(claim.address.notify_id for claim in claims))
        true = list[Reconnected]()
        while claimed and (news := await calls.confirm_reconnection(own, claimed)):
            true.append(news)
            claimed.remove(news.address.notify_id)
        for notify_id in claimed:
            await self.ignore_message(own, NO_STATUS, f"there is no connection with notify-id {notify_id}")
        return true

    def _why_untrusted(self, path: str, message: CrmResponse) -> str:
        """Returns why an answer is not trusted: it is not signed with the token, or it belongs to another action."""
        if not self._key:
            return ""
        if why := why_unproven(
            self._key, text_to_sign(messages.CRM_RESPONSE, path, message.fields_as_received), message.proof
        ):
            return why
        if message.epoch == self._epoch or (self._unasked and not message.epoch):
            return ""
        return f"it answers the request with epoch {message.epoch}, not {self._epoch}"

    def current_crm_address(self, granted: CrmAddress) -> CrmAddress:
        """Returns the CRM that is connected now, which may have changed since the action was granted."""
        return self._latest or granted

    def unread_messages(self, path: str) -> deque[CrmNews]:
        """Returns the unread messages about one object."""
        return self._unread.setdefault(path, deque())

    async def wait_for_message(self, path: str, until: datetime, what: str = "the CRM's answer") -> CrmNews | None:
        """Returns the next message about an object; None when the time is over."""
        box = self.unread_messages(path)
        while True:
            await self._pace.take_one()
            if not box and (left := until - workflow.now()) > timedelta(0):
                try:
                    await workflow.wait_condition(lambda: bool(box), timeout=left, timeout_summary=what)
                except TimeoutError:
                    return None
            news = box.popleft() if box else None
            why = self._why_untrusted(path, news) if isinstance(news, CrmResponse) else ""
            if not why:
                return news
            assert isinstance(news, CrmResponse)
            await self.ignore_message(path, news.state, why)

    async def ignore_message(self, path: str, state: str, why: str, actor: str = "CRM") -> None:
        """Records a message that changes nothing, unless too many were recorded already."""
        self._ignored += 1
        if self._ignored <= MAX_IGNORED:
            last = "; further ones are not kept" if self._ignored == MAX_IGNORED else ""
            await calls.record_ignored_messages(
                IgnoredMessage(path=path, state=state, reason=f"{why}{last}", actor=actor)
            )

    async def handle_late_answer(self, path: str, said: CrmResponse) -> None:
        """Handles an answer that came after the last read."""
        await self.ignore_message(path, said.state, ENDED_MESSAGE)

    async def close_inbox(self) -> None:
        """Stops reading: unread and later messages are recorded as ignored."""
        self._over = True
        for path, box in self._unread.items():
            while box:
                late = box.popleft()
                if isinstance(late, CrmResponse):
                    await self.ignore_message(path, late.state, ENDED_MESSAGE)


def _content_of_signal(letter: ReceivedSignal) -> str:
    """Returns what a message says, without its progress: two with the same text repeat each other."""
    about = {key: letter.message.get(key) for key in ("path", "state", "notify_id", "epoch", "address", "errors")}
    return letter.signal + json.dumps(about, sort_keys=True, default=str)
