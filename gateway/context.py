"""What the gateway's routes work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from client.actions import ActionClient
from gateway.events import STORE_SECONDS, WORKER_SECONDS, EventFeed
from gateway.reads import GatewayClient
from gateway.tokens import TokenFile

ANONYMOUS = "http"  # who asks, where nobody has to prove it
MAX_STREAMS = 1_000


@dataclass
class Gateway:
    """One gateway process: its client, its tokens and its event feed."""

    ratchet: GatewayClient
    tokens: TokenFile | None = None  # None: everybody may ask, and nobody is proven
    hosts: frozenset[str] = frozenset()  # names in the Host header besides the loopback ones
    streams: int = 0  # open now
    feed: EventFeed = field(init=False)

    def __post_init__(self) -> None:
        self.feed = EventFeed(self.ratchet, STORE_SECONDS if self.ratchet.store_reads else WORKER_SECONDS)


def gateway_of(request: Request) -> Gateway:
    """The gateway that serves a request."""
    gateway: Gateway = request.app.state.gateway
    return gateway


def authenticate(request: Request) -> str:
    """Who asks: the name of the token, or nobody in particular if there are no tokens."""
    tokens = gateway_of(request).tokens
    return tokens.authenticate(request.headers.get("authorization")) if tokens else ANONYMOUS


def client_of(request: Request) -> ActionClient:
    """The client that serves a request."""
    return gateway_of(request).ratchet


Caller = Annotated[str, Depends(authenticate)]
Ratchet = Annotated[ActionClient, Depends(client_of)]
