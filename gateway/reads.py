"""The gateway's client: reads from the store itself where this process has it, through a worker where not."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar

from pydantic import BaseModel
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from activities.access import Authorizer
from activities.accessguard import RefusalRecorder
from activities.refusals import refusal_of_error
from client.actions import ActionClient, Ticket
from client.admission import ADMISSION_SECONDS
from client.message_signer import MessageSigner, VouchingMessageSigner
from domain import registry, wire
from domain.access import Subject
from domain.errors import Refused, StoreUnavailable
from domain.model import Admission, Request
from domain.requests import AccessQuery, AccessView
from gateway.turns import AdmissionTurns

T = TypeVar("T", bound=BaseModel)


class GatewayClient(ActionClient):
    """An ActionClient that answers reads from the store, so that they leave nothing in Temporal.

    A read for a caller is judged as a worker would judge it; what the gateway itself reads is not.
    """

    busy_seconds = ADMISSION_SECONDS  # a caller by HTTP, or a proxy, would give up sooner than a command does

    def __init__(
        self,
        client: Client,
        store_reads: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
        ui: str = "",
        authorizer: Authorizer | None = None,
        message_signer: MessageSigner | None = None,
        refusals: RefusalRecorder | None = None,
    ) -> None:
        super().__init__(client, ui, message_signer)
        self.store_reads = store_reads or {}
        self.authorizer = authorizer or Authorizer()
        self.refusals = refusals
        self.passes_on = False
        self.claimed_name: str | None = None
        self._turns = AdmissionTurns()  # shared by the copies that speak for callers

    async def request_action(self, request: Request) -> Ticket:
        """Requests an action when it is its turn: of a burst, all would wait for a worker, and most of them in vain.

        A tenant that was told to ask later is told so again, without a workflow: its flood must not cost the others.
        """
        tenant = registry.tenant_of(request.path)
        async with self._turns.take_turn(tenant, request.path):
            if self._may_request(request) and (refusal := self._turns.find_refusal(tenant)):
                return Ticket(request.path, "", Admission(refusal=refusal))
            ticket = await super().request_action(request)
            self._turns.note_answer(tenant, ticket.admission.refusal)
            return ticket

    def _may_request(self, request: Request) -> bool:
        """Tells whether the policy lets the caller make this request: nobody else is told about a tenant's quota."""
        try:
            self.authorizer.authorize_sender(request, self.describe_caller())
        except Refused:
            return False
        return True

    async def _answer_directly(self, activity: str, query: BaseModel, answer: type[T], seconds: float) -> T | None:
        if (read := self.store_reads.get(activity)) is None:
            return None
        try:
            found: T = await self._answer_from_store(activity, read, query)
            return found
        except ApplicationError as error:
            if (refusal := refusal_of_error(error)) is not None:
                raise refusal.to_error() from error
            raise StoreUnavailable(error.message) from error
        except Refused as refused:
            if self.refusals:
                await self.refusals.record_refusal(activity, query, refused)
            raise

    async def is_allowed(self, verb: str, path: str) -> bool:
        """Tells whether the policy lets the caller do this. Without the store the policy is a worker's."""
        if self.store_reads:
            policy = self.authorizer.policy()
            return policy is None or policy.is_allowed(self.describe_caller(), verb, path)
        return not (await self.run_query(wire.READ_ACCESS, AccessQuery(verb=verb, path=path), AccessView)).why

    def forwarding_client(self) -> Self:
        """Returns this client, for queries whose senders have put their own names and proofs on them."""
        other = copy.copy(self)
        other.passes_on = True
        return other

    def claiming_client(self, name: str) -> Self:
        """Returns this client, for an own program that says itself who asks: each query is judged as if it sent it."""
        other = self.forwarding_client()
        other.claimed_name = name
        other.refusals = None  # the program then asks by the reads themselves, and those are recorded
        return other

    async def _answer_from_store(self, activity: str, read: Callable[..., Awaitable[T]], query: BaseModel) -> T:
        if self.claimed_name is not None:
            query = query.model_copy(update={"requested_by": self.claimed_name})
        if self.passes_on:
            subject = self.authorizer.authorize_call(activity, query)
            return await self.authorizer.answer(subject, lambda: read(query))
        if not isinstance(self.message_signer, VouchingMessageSigner):
            return await self.authorizer.answer(None, lambda: read(query))
        caller = self.describe_caller()
        named = query.model_copy(update={"requested_by": caller.name})
        subject = self.authorizer.authorize_call(activity, named, known=caller)
        return await self.authorizer.answer(subject, lambda: read(named))

    def describe_caller(self) -> Subject:
        """Returns whom this client speaks for, with the groups that a worker would find: those of the identities file,
        those of the gateway's own entry there, and with an OIDC token those that the token and its issuer give."""
        signer = self.message_signer
        login = signer.login if isinstance(signer, VouchingMessageSigner) else None
        return self.authorizer.identify.look_up_caller(signer.name, login, signer.public_key)
