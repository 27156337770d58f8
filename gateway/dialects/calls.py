"""A call of a dialect's client: who asks, and what the routes do for it. The package's docstring says how to use it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel
from pydantic_core import from_json

from client.launching import Ticket, workflow_id
from client.patience import run_with_timeout
from client.runs import ActionRun
from domain.aliases import MAX_ALIASES, READ_ALIASES, AliasesView, AliasQuery, Dialect
from domain.errors import Category, Refused
from domain.model import ActionResult, Admission, Outcome
from domain.model import Request as ActionRequest
from domain.validation import refuse_validation_errors
from gateway.context import Gateway, gateway_of_request
from gateway.problems import Unauthorized
from gateway.reads import GatewayClient
from gateway.tokens import Caller

WAIT_SECONDS = 30.0  # clients of the old systems expect the answer after the work

# How a request is refused whose first answer got lost: it runs, or it is done.
_DONE_ALREADY = (Category.CONFLICT, Category.NOT_ALLOWED, Category.NOT_FOUND)

T = TypeVar("T", bound=BaseModel)


class _SentPosition(Enum):
    """When a request was sent: an action that came after it may run now, and is not the answer to it."""

    LAST = auto()
    BEFORE_OTHERS = auto()


@dataclass(frozen=True)
class _EarlierCall:
    """An action that the same call asked for before."""

    request_id: str
    run: str
    is_open: bool


class _IdsByPath(dict[str, str]):
    """Ids of objects, by path."""

    def __missing__(self, path: str) -> str:
        raise Refused(
            Category.FORBIDDEN, f"the gateway may not read the id of {path}", "give its name a role that does"
        )


@dataclass(frozen=True)
class DialectCall:
    """One HTTP request of a dialect's client."""

    gateway: Gateway
    caller: Caller
    fingerprint: str  # of the token, the route and the body

    @property
    def ratchet(self) -> GatewayClient:
        """The client that serves the call: it speaks for the caller."""
        return self.gateway.ratchet.acting_for(self.caller.name, self.caller.login)

    def check_tenant(self, tenant: str) -> str:
        """Returns the tenant, such as `project:p1`; raises Unauthorized if the token may not use it."""
        if self.caller.tenants and tenant not in self.caller.tenants:
            raise Unauthorized(f"the token of {self.caller.name} may not use {tenant}")
        return tenant

    def build_request(self, path: str, action: str, spec: dict[str, Any] | None = None, **more: Any) -> ActionRequest:
        """Builds the request for an action, in the caller's name; Refused if a name in the path is wrong."""
        with refuse_validation_errors("the request is not valid"):
            return ActionRequest(path=path, action=action, spec=spec, requested_by=self.caller.name, **more)

    async def perform_action(
        self,
        path: str,
        action: str,
        spec: dict[str, Any] | None = None,
        repeatable: bool = True,
        **more: Any,
    ) -> Outcome | None:
        """Requests an action and waits for its outcome; None if it takes longer. Raises Refused.

        The same call again joins the first one's action while that runs. In the minute after its end the answer is the
        first one's if the call is refused, because the first one did what it asks for, or if it is not `repeatable`:
        such an action is legal again at once, and an answer that got lost must not carry it out twice.
        """
        request = self.build_request(path, action, spec, **more)
        if request.request_id:
            return await self._wait_for_outcome(await self._request_action(request))
        earlier = await self._find_same_call(request)
        if earlier and not (earlier.is_open or repeatable) and (done := await self._find_success(request, earlier)):
            return done
        new_id = f"{self.fingerprint[:32]}-{uuid.uuid4().hex[:16]}"
        request_id = earlier.request_id if earlier and earlier.is_open else new_id
        try:
            ticket = await self._request_action(request.model_copy(update={"request_id": request_id}))
        except Refused as refused:
            ticket = await self._find_first_ticket(request, earlier, refused)
        return await self._wait_for_outcome(ticket)

    async def _find_first_ticket(
        self, request: ActionRequest, earlier: _EarlierCall | None, refused: Refused
    ) -> Ticket:
        """Returns the ticket of the first of these calls if this one is refused for what that one did or does; else
        raises `refused`.

        What runs may be another repetition that is not judged yet, and is refused as this one was: what is done is
        only on record in the inventory.
        """
        if refused.category not in _DONE_ALREADY:
            raise refused
        if refused.category is Category.CONFLICT:
            if (running := await self._find_same_call(request)) is None:
                raise refused
            try:
                return await self._request_action(request.model_copy(update={"request_id": running.request_id}))
            except Refused as also_refused:
                if also_refused.category not in _DONE_ALREADY:
                    raise refused from None
        admitted = await self.ratchet.last_admitted_run(workflow_id(request))
        first = await self._match_same_call(request, admitted) or earlier
        if first is None or (first is earlier and first.is_open):
            raise refused
        return Ticket(workflow_id(request), first.run, Admission())

    async def create_object_once(self, build: Callable[[str], ActionRequest]) -> tuple[str, Outcome | None]:
        """Requests a creation and waits for it. Returns its path and outcome; None if it takes longer.

        The same call within a minute finds the first one's request, running or ended. If what that one created is gone
        since, the next number makes it a new request. `build` gets a UUID that names the request.
        """
        for number in count():
            request, sent = await self._find_or_build_creation(build, number)
            if sent is not _SentPosition.BEFORE_OTHERS:
                ticket = await self._request_action(request)
                if not _is_of_earlier_request(ticket.admission) or await self.ratchet.object_exists(request.path):
                    return request.path, await self._wait_for_outcome(ticket)
            elif await self.ratchet.object_exists(request.path):
                return request.path, None
        raise AssertionError("an endless loop ends by its return")

    async def _find_or_build_creation(
        self, build: Callable[[str], ActionRequest], number: int
    ) -> tuple[ActionRequest, _SentPosition | None]:
        """Returns the request that this call, or the same call a minute ago, has sent; else a new one."""
        window = int(time.time()) // self.gateway.same_request_seconds
        request = self._request_in_window(build, window - 1, number)
        sent = await self._find_when_sent(request)
        if sent is None:
            request = self._request_in_window(build, window, number)
            sent = await self._find_when_sent(request)
        return request, sent

    async def _find_same_call(self, request: ActionRequest) -> _EarlierCall | None:
        """Returns the last action on the object if the same call asked for it, and it runs or has just ended.

        Not the newest run: that may be a request that was refused since.
        """
        return await self._match_same_call(request, await self.ratchet.last_run(workflow_id(request)))

    async def _match_same_call(self, request: ActionRequest, run: ActionRun | None) -> _EarlierCall | None:
        """Returns this run of the object if the same call asked for it, and it is open or has just ended."""
        if run is None or run.seconds_since_end() > self.gateway.same_request_seconds:
            return None
        request_id = str((await run.memo()).get("request_id", ""))
        is_same = run.action == request.action and request_id.startswith(f"{self.fingerprint[:32]}-")
        return _EarlierCall(request_id, run.run_id, run.is_open) if is_same else None

    async def _find_success(self, request: ActionRequest, earlier: _EarlierCall) -> Outcome | None:
        """Returns the outcome of an action that has ended; None if it failed or was refused: it may be tried again."""
        try:
            outcome = await self.ratchet.wait_for_outcome(workflow_id(request), earlier.run)
        except Refused:
            return None
        return None if outcome.result in (ActionResult.FAILED, ActionResult.CANCELLED) else outcome

    def _request_in_window(self, build: Callable[[str], ActionRequest], window: int, number: int) -> ActionRequest:
        key = hashlib.sha256(f"{self.fingerprint} {window} {number}".encode()).hexdigest()
        name = f"{key[:8]}-{key[8:12]}-5{key[13:16]}-a{key[17:20]}-{key[20:32]}"
        return build(name).model_copy(update={"request_id": name})

    async def _find_when_sent(self, request: ActionRequest) -> _SentPosition | None:
        """Tells whether a request was sent: Temporal knows the newest one on the object, the history those before."""
        newest = await self.ratchet.newest_run(workflow_id(request))
        if newest is None:
            return None
        if (await newest.memo()).get("request_id") == request.request_id:
            return _SentPosition.LAST
        lines = await self.ratchet.read_history(request.path)
        return _SentPosition.BEFORE_OTHERS if any(line.request_id == request.request_id for line in lines) else None

    async def _request_action(self, request: ActionRequest) -> Ticket:
        ticket = await self.ratchet.request_action(request)
        if ticket.admission.refusal:
            raise ticket.admission.refusal.to_error()
        return ticket

    async def _wait_for_outcome(self, ticket: Ticket) -> Outcome | None:
        if ticket.admission.outcome:
            return ticket.admission.outcome
        try:
            return await run_with_timeout(WAIT_SECONDS, self.ratchet.wait_for_outcome(ticket.path, ticket.run))
        except TimeoutError:
            return None

    async def find_path_by_alias(self, dialect: Dialect, alias: str, what: str) -> str:
        """Returns the path that an id stands for; Refused if there is no such id, naming `what` was looked for.

        The object may be gone, or another one may be at its path: compare `info["generation"]` if that matters.
        """
        found = await self.ratchet.run_query(READ_ALIASES, AliasQuery(dialect=dialect, ids=[alias]), AliasesView)
        if not found.aliases:
            raise Refused(Category.NOT_FOUND, f"there is no {what} {alias[:100]}")
        return found.aliases[0].path

    async def aliases_of_paths(self, dialect: Dialect, paths: Sequence[str]) -> dict[str, str]:
        """Returns the ids of the objects at these paths, by path.

        The gateway reads them for itself: they are of objects that the caller has seen, or of their parts, and a role
        about leases says nothing about reservations.
        """
        ids = _IdsByPath()
        for first in range(0, len(paths), MAX_ALIASES):
            query = AliasQuery(dialect=dialect, paths=list(paths[first : first + MAX_ALIASES]))
            found = await self.gateway.ratchet.run_query(READ_ALIASES, query, AliasesView)
            ids |= {alias.path: alias.id for alias in found.aliases}
        return ids


def _is_of_earlier_request(admission: Admission) -> bool:
    return admission.outcome is not None and admission.grant is None


def token_of_request(request: Request) -> str:
    """Returns the token of a request: in X-Auth-Token, as a bearer token, or as the password of HTTP Basic."""
    if token := request.headers.get("x-auth-token"):
        return token
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return credentials.strip() if scheme.lower() == "bearer" else ""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Unauthorized("the Authorization header is not readable") from error


async def parse_dialect_call(request: Request, secret: str, caller: Caller) -> DialectCall:
    """Makes the call of a request whose caller is known. The secret also says in which project, if it is the tenant."""
    parts = (secret, request.method, request.url.path, request.url.query)
    asked = hashlib.sha256("\n".join(parts).encode() + b"\n" + await request.body())
    return DialectCall(gateway_of_request(request), caller, asked.hexdigest())


async def read_json_body(request: Request) -> Any:
    """Returns the body of a request, None if it is empty; Refused if it is not JSON.

    Python's own parser lets half characters through, which nothing behind it can write, and falls over deep nesting.
    """
    body = await request.body()
    try:
        return from_json(body, allow_inf_nan=False) if body else None
    except ValueError as error:
        raise Refused(Category.INVALID, f"the body is not JSON: {error}") from error


async def authenticate_call(request: Request) -> DialectCall:
    """The call of a request with a token of the gateway; raises Unauthorized."""
    secret = token_of_request(request)
    return await parse_dialect_call(request, secret, await gateway_of_request(request).identify_caller(secret))


Call = Annotated[DialectCall, Depends(authenticate_call)]
