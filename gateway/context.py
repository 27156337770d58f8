"""What the gateway's routes work with."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from client.actions import ActionClient
from client.connect_errors import translate_errors
from client.reading import Queries
from gateway.dialects.tumblebug_log import RequestLog
from gateway.events import STORE_POLL_SECONDS, WORKER_POLL_SECONDS, EventFeed
from gateway.reads import GatewayClient
from gateway.tokens import Caller, CallerTokens
from workers.crmqueues import CrmQueueServer

ReadStatus = Callable[[Queries, str], Awaitable[dict[str, Any]]]
ANONYMOUS = "http"  # who asks, where nobody has to prove it
MAX_STREAMS = 1_000


@dataclass
class Gateway:
    """One gateway process: its client, its tokens and its event feed."""

    ratchet: GatewayClient
    tokens: CallerTokens | None = None  # None: everybody may ask, and nobody is proven
    reads_token: str = ""  # good for reads only: the token of the home folder's own programs
    hosts: frozenset[str] = frozenset()  # names in the Host header besides the loopback ones
    pool: str = "main"  # the hosts that the Blazar dialect leases
    project: str = "default"  # of its callers who name none
    public_url: str = ""  # the gateway as its clients reach it; empty: as they address it
    origins: frozenset[str] = frozenset()  # pages of other sites that may ask
    same_request_seconds: int = 60  # how long a call sent again is the same request: of an action, from its end
    prices: Mapping[str, float] = field(default_factory=dict)  # of an hour of a VM, by cloud+region+type
    read_status: ReadStatus | None = None  # answers a status as `starter` prints it; given by `starter up`
    streams: int = 0  # open now
    requests: RequestLog = field(default_factory=RequestLog)  # of Tumblebug's clients
    feed: EventFeed = field(init=False)
    crm_door: CrmQueueServer = field(init=False)

    def __post_init__(self) -> None:
        self.crm_door = CrmQueueServer(self.ratchet.client)
        self.feed = EventFeed(self.ratchet, STORE_POLL_SECONDS if self.ratchet.store_reads else WORKER_POLL_SECONDS)

    async def identify_caller(self, token: str) -> Caller:
        """Returns the owner of a token; raises Unauthorized. Without tokens nobody has to prove who they are."""
        return await self.tokens.find_token_owner(token) if self.tokens else Caller(ANONYMOUS)


def gateway_of_request(request: Request) -> Gateway:
    """Returns the gateway that serves a request."""
    gateway: Gateway = request.state.gateway
    return gateway


def serve_as(gateway: Gateway, app: ASGIApp) -> ASGIApp:
    """Returns an application whose requests this gateway serves: all gateways of a process share the routes."""

    async def pass_with_gateway(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {**scope.get("state", {}), "gateway": gateway}}, receive, send)

    return pass_with_gateway


class ErrorTranslatingRoute(APIRoute):
    """A route in which errors of Temporal become ours."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_translating_errors(request: Request) -> Response:
            with translate_errors(gateway_of_request(request).ratchet.client.namespace):
                return await handle(request)

        return handle_translating_errors


# Dependencies are coroutines, also those that wait for nothing: others would cost a thread hop for each request.
async def authenticate_caller(request: Request) -> Caller:
    """Returns who asks: the owner of the token, or nobody in particular if there are no tokens."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return await gateway_of_request(request).identify_caller(token.strip() if scheme.lower() == "bearer" else "")


async def authenticate_reader(request: Request) -> Caller | None:
    """Returns who reads; None for a program that can read this gateway's home folder: it says itself who asks."""
    sent = request.headers.get("authorization", "").removeprefix("Bearer ")
    known = gateway_of_request(request).reads_token
    if known and hmac.compare_digest(sent.encode(), known.encode()):
        return None
    return await authenticate_caller(request)


CallerOf = Annotated[Caller, Depends(authenticate_caller)]


async def client_of_caller(request: Request, caller: CallerOf) -> ActionClient:
    """Returns the client for a request, which acts for its caller."""
    return gateway_of_request(request).ratchet.acting_for(caller.name, caller.login)


Ratchet = Annotated[ActionClient, Depends(client_of_caller)]
