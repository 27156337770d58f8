"""What the edge asks of others: of a CRM, and of the inventory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol

from domain.edge.facts import (
    AnswerFact,
    Connected,
    ConnectFact,
    Inventoried,
    KeptPolicy,
    LostFact,
    PolicyQuestion,
    Refuges,
    Rejoined,
    Told,
)
from domain.edge.messages import Address, CrmRequest, Ignored
from domain.edge.policies import Facts

Prove = Callable[[], Awaitable[None]]  # may it still be sent? raises Superseded if not
Doubt = Callable[[str], str]  # why a message is not believed, by the cloudlet's key; empty if it is


class Crm(Protocol):
    """How requests leave. Returns when the CRM is sure to get them; its answers come as signals."""

    async def send(self, to: Address, requests: Sequence[CrmRequest], prove: Prove) -> None:
        """Unavailable: not sent. UnknownOutcome: perhaps sent. A retry helps both. Rejected: it will not take them.

        The right to send is proven just before the requests leave; without it they do not.
        """
        ...


class EdgeInventory(Protocol):
    """What the inventory keeps of connections, and what policies want to know. Each method is one transaction."""

    async def connected(self, fact: ConnectFact, doubt: Doubt) -> Connected: ...

    async def answered(self, fact: AnswerFact, doubt: Doubt) -> Told: ...

    async def lost(self, fact: LostFact, doubt: Doubt) -> Told: ...

    async def rejoined(self, path: str, notify_id: int) -> Rejoined: ...

    async def ignore(self, messages: Sequence[Ignored], at: datetime) -> int: ...

    async def everything(self, cloudlet: str, after: str) -> Inventoried:
        """Every instance that should be on a cloudlet, in pages: those whose path comes after this one."""
        ...

    async def refuges(self, cloudlet: str) -> Refuges: ...

    async def policy(self, path: str) -> KeptPolicy: ...

    async def facts(self, asked: PolicyQuestion) -> Facts: ...
