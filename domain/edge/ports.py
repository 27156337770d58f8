"""What the edge asks of others: of a CRM, and of the inventory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol

from domain.edge.facts import (
    AnswerFact,
    CloudletAnswer,
    Connected,
    ConnectFact,
    ExpectedPage,
    KeptPolicy,
    LostFact,
    PolicyQuestion,
    Refuges,
    Rejoined,
)
from domain.edge.messages import CrmAddress, CrmRequest, IgnoredMessage
from domain.edge.policies import PolicyFacts

ProveRight = Callable[[], Awaitable[None]]  # may it still be sent? raises Superseded if not
CheckProof = Callable[[str], str]  # why a message is not believed, by the cloudlet's key; empty if it is


class CrmTransport(Protocol):
    """How requests leave. Returns when the CRM is sure to get them; its answers come as signals."""

    async def send(self, to: CrmAddress, requests: Sequence[CrmRequest], prove: ProveRight) -> None:
        """Unavailable: not sent. UnknownOutcome: perhaps sent. A retry helps both. Rejected: it will not take them.

        The right to send is proven just before the requests leave; without it they do not.
        """
        ...


class EdgeInventory(Protocol):
    """What the inventory keeps of connections, and what policies want to know. Each method is one transaction."""

    async def accept_connection(self, fact: ConnectFact, doubt: CheckProof) -> Connected: ...

    async def record_answer(self, fact: AnswerFact, doubt: CheckProof) -> CloudletAnswer: ...

    async def record_loss(self, fact: LostFact, doubt: CheckProof) -> CloudletAnswer: ...

    async def find_connection(self, path: str, notify_id: int) -> Rejoined: ...

    async def record_ignored(self, messages: Sequence[IgnoredMessage], at: datetime) -> int: ...

    async def expected_instances(self, cloudlet: str, after: str) -> ExpectedPage:
        """Every instance that should be on a cloudlet, in pages: those whose path comes after this one."""
        ...

    async def find_refuges(self, cloudlet: str) -> Refuges: ...

    async def stored_policy(self, path: str) -> KeptPolicy: ...

    async def policy_facts(self, asked: PolicyQuestion) -> PolicyFacts: ...
