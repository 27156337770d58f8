"""Protocols of the edge family: how requests reach a CRM, and what the inventory stores and answers."""

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

ProveRight = Callable[[], Awaitable[None]]  # raises Superseded if the requests may no longer be sent
CheckProof = Callable[[str], str]  # the cloudlet's key -> why the proof is refused; empty if it is good


class CrmTransport(Protocol):
    """Sends requests to a CRM. Returns when they are sure to arrive; the answers come as signals."""

    async def send(self, to: CrmAddress, requests: Sequence[CrmRequest], prove: ProveRight) -> None:
        """Sends requests. Raises Unavailable (not sent), UnknownOutcome (perhaps sent) or Rejected (refused by the
        CRM).

        `prove` is called just before the requests leave, and raises Superseded if the right to order is lost.
        """
        ...


class EdgeInventory(Protocol):
    """The edge family's store: CRM connections and policies. Each method is one transaction."""

    async def accept_connection(self, fact: ConnectFact, doubt: CheckProof) -> Connected:
        """Records a CRM's connection, if its notify-id, version and proof are right."""
        ...

    async def record_answer(self, fact: AnswerFact, doubt: CheckProof) -> CloudletAnswer:
        """Applies a CRM's message about its cloudlet, or names the action that must handle it."""
        ...

    async def record_loss(self, fact: LostFact, doubt: CheckProof) -> CloudletAnswer:
        """Records that a connection is lost; the cloudlet goes Offline unless it has a newer one."""
        ...

    async def find_connection(self, path: str, notify_id: int) -> Rejoined:
        """Returns the current connection of the object's cloudlet, if it has this notify-id."""
        ...

    async def record_ignored(self, messages: Sequence[IgnoredMessage], at: datetime) -> int:
        """Writes history lines for messages that changed nothing."""
        ...

    async def expected_instances(self, cloudlet: str, after: str) -> ExpectedPage:
        """Returns a page of the instances that should exist on a cloudlet: those whose path comes after `after`."""
        ...

    async def find_refuges(self, cloudlet: str) -> Refuges:
        """Finds for each app of the cloudlet a cluster on another cloudlet that it can move to."""
        ...

    async def stored_policy(self, path: str) -> KeptPolicy:
        """Returns the policy as it is stored."""
        ...

    async def policy_facts(self, asked: PolicyQuestion) -> PolicyFacts:
        """Returns the sites and instances, or the cluster, that a policy decides on."""
        ...
