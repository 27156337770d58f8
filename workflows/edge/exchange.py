"""One object's exchange with its CRM: the request, its answers, silence, reconnection, and the undo.

The state table decides what each answer does; see `domain.edge.interpretation`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from domain import registry
    from domain.edge.interpretation import CrmInterpreter, MessageEffect, ReconnectDecision, decide_after_reconnect
    from domain.edge.messages import (
        CrmAddress,
        CrmProgress,
        CrmRequest,
        CrmResponse,
        CrmVerb,
        Reconnected,
        instance_spec_digest,
    )
    from domain.edge.reports import InstanceGrantDetails
    from domain.edge.tables import ERROR_STATUS_OF, CrmActor, S
    from domain.errors import format_one_line
    from domain.model import Grant, Move
    from domain.statetable import NONE, Actor
    from workflows.calls import move_objects
    from workflows.edge import calls
    from workflows.edge.inbox import CrmInboxAction

_REQUESTED_STATUSES = (S.CREATE_REQUESTED, S.UPDATE_REQUESTED, S.DELETE_REQUESTED)
_ERROR_STATUS_OF_VERB = {
    CrmVerb.DELETE: S.DELETE_ERROR,
    CrmVerb.CREATE: S.CREATE_ERROR,
}  # the CRM's answer if it cannot undo


class CrmFailed(Exception):
    """The CRM reported an error or was silent. `to` is the error status, `missing` that it lacks the object."""

    def __init__(self, why: str, to: str, actor: str, missing: bool = False) -> None:
        super().__init__(why)
        self.to, self.actor, self.missing = to, actor, missing


class CrmExchange:
    """The exchange about one object of an action. `status` is the object's, as far as the action has moved it."""

    def __init__(
        self,
        mail: CrmInboxAction,
        grant: Grant,
        path: str,
        status: str,
        terms: InstanceGrantDetails,
        address: CrmAddress,
    ) -> None:
        self.path, self.status = path, status
        self.address = mail.current_crm_address(address)
        self._inbox, self._grant, self._terms = mail, grant, terms
        self._table = registry.kind_at(path).table
        self._progress: CrmProgress | None = None
        self._order: CrmRequest | None = None
        self._has_heard = workflow.now()
        self._asked = False
        self.on_progress: Callable[[str, CrmProgress | None], None] = lambda _status, _progress: None

    async def request_and_wait(self, verb: CrmVerb, patience: float) -> CrmResponse:
        """Sends the request and follows it to its end. Returns the CRM's last answer; raises CrmFailed."""
        cap = workflow.now() + timedelta(seconds=self._terms.patience.cap)
        await self._send_request(verb, self._terms.spec)
        while True:
            news = await self._next_message(patience, cap)
            if isinstance(news, Reconnected):
                message = await self._handle_reconnect(news)
            else:
                message = news if isinstance(news, CrmResponse) else None
            if message and await self._apply_message(message):
                return message

    async def undo_and_wait(self, verb: CrmVerb, wanted: str) -> str:
        """Asks the CRM to undo, and waits a while for its confirmation. Returns what is uncertain, if anything."""
        try:
            if await self._request_undo(verb, wanted):
                return ""
        except FailureError as error:
            why = error.cause.message if isinstance(error.cause, FailureError) else error.message
            return format_one_line(f"the CRM could not be told to clean up: {why}")
        return f"the CRM did not confirm within {self._terms.patience.cleanup:g} s that it cleaned up"

    async def _request_undo(self, verb: CrmVerb, wanted: str) -> bool:
        until = workflow.now() + timedelta(seconds=self._terms.patience.cleanup)
        await self._send_request(verb, self._terms.before, undo=True)
        while (news := await self._inbox.wait_for_message(self.path, until, "the CRM cleans up")) is not None:
            if isinstance(news, Reconnected):
                self.address = news.address
                there = news.reported.get(self.path)
                if (there.status if there else NONE) == wanted:
                    return True
                await self._resend_request()
            elif isinstance(news, CrmResponse):
                if news.notify_id == self.address.notify_id and news.status in (
                    wanted,
                    _ERROR_STATUS_OF_VERB.get(verb),
                ):
                    return news.status == wanted
                await self._inbox.ignore_message(self.path, news.state, f"cleaning up, under {self.status}")
        return False

    async def _apply_message(self, message: CrmResponse) -> bool:
        """Moves the object as the state table says to this message. Returns True for the last one."""
        meaning = CrmInterpreter(self._table, self.status, self.address.notify_id, self._progress).interpret_message(
            message
        )
        if message.notify_id == self.address.notify_id:
            self._has_heard, self._asked = workflow.now(), False
        if meaning.effect is MessageEffect.IGNORED:
            await self._inbox.ignore_message(self.path, message.state, meaning.why)
        elif meaning.effect is MessageEffect.ERROR:
            raise CrmFailed(
                message.joined_errors() or f"the CRM says {message.state} and no more", meaning.to, CrmActor.CRM
            )
        elif meaning.effect is not MessageEffect.ENDS:
            await self._advance_object(meaning.to, message)
        return meaning.effect is MessageEffect.ENDS

    async def _advance_object(self, to: str, message: CrmResponse) -> None:
        self.status, self._progress = to, message.progress or self._progress
        text = message.progress.describe() if message.progress else ""
        news = {"progress": message.progress.model_dump()} if message.progress else None
        await move_objects(self._grant, [Move(path=self.path, to=to, actor=CrmActor.CRM, message=text, info=news)])
        self.on_progress(to, message.progress)

    async def _next_message(self, patience: float, cap: datetime) -> object:
        """Returns the next message. Silence leads to an error, or to a progress request first."""
        while True:
            wait = self._terms.patience.answer if self._asked else patience
            until = min(self._has_heard + timedelta(seconds=wait), cap)
            news = await self._inbox.wait_for_message(self.path, until)
            if news is not None:
                return news
            await self._handle_silence(wait, cap)

    async def _handle_silence(self, waited: float, cap: datetime) -> None:
        if workflow.now() >= cap:
            raise self._silence_error(f"the CRM did not finish within {self._terms.patience.cap:g} s")
        if self.status in _REQUESTED_STATUSES:
            raise self._silence_error(f"the CRM did not answer within {waited:g} s")
        if self._asked:
            raise self._silence_error(
                f"the CRM fell silent under {self.status}, and does not say whether it still works"
            )
        self._asked, self._has_heard = True, workflow.now()
        await calls.send_requests(self.address, self._make_request(CrmVerb.REPORT))

    def _silence_error(self, why: str) -> CrmFailed:
        return CrmFailed(why, ERROR_STATUS_OF[self.status], Actor.CONTROLLER)

    async def _handle_reconnect(self, news: Reconnected) -> CrmResponse | None:
        """After a reconnection, waits, takes the CRM's report as its answer, or sends the request again."""
        self.address, self._has_heard, self._asked = news.address, workflow.now(), False
        there = news.reported.get(self.path)
        resolution = decide_after_reconnect(self.status, there, instance_spec_digest(self._terms.spec))
        if resolution is ReconnectDecision.RESEND:
            await self._resend_request()
        if resolution is ReconnectDecision.LOST:
            why = "the CRM has connected again and does not have it any more"
            raise CrmFailed(why, ERROR_STATUS_OF[self.status], Actor.CONTROLLER, missing=True)
        if resolution is not ReconnectDecision.USE_REPORT:
            return None
        return CrmResponse(state=there.state if there else "NotPresent", notify_id=self.address.notify_id)

    async def _send_request(self, verb: CrmVerb, spec: dict[str, object], undo: bool = False) -> None:
        self._order = self._make_request(verb).model_copy(update={"spec": spec, "undo": undo})
        self._has_heard = workflow.now()
        await calls.send_requests(self.address, self._order)

    async def _resend_request(self) -> None:
        """Sends the same order as another attempt, to the CRM that is connected now."""
        assert self._order
        again = {"attempt": self._order.attempt + 1, **self.address.connection_fields()}
        self._order = self._order.model_copy(update=again)
        await calls.send_requests(self.address, self._order)

    def _make_request(self, verb: CrmVerb) -> CrmRequest:
        to = self.address.connection_fields()
        return CrmRequest(path=self.path, verb=verb, epoch=self._grant.epoch, reply_to=self._grant.path, **to)
