"""Protocols of the edge family: how requests reach a CRM, and what the inventory stores and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol

from domain.edge.messages import CrmAddress, CrmRequest, IgnoredMessage
from domain.edge.policies import PolicyFacts
from domain.edge.reports import (
    AnswerReport,
    AnswerResult,
    ConnectionReply,
    ConnectReport,
    DisconnectReport,
    ExpectedInstancesPage,
    FailoverPlan,
    PolicyFactsQuery,
    StoredPolicy,
    StoredReconnection,
)

ProveRight = Callable[[], Awaitable[None]]  # raises Superseded if the requests may no longer be sent
CheckProof = Callable[[str], str]  # the cloudlet's key -> why the proof is refused; empty if it is good


class CrmTransport(Protocol):
    """Sends requests to a CRM. Returns when they are sure to arrive; the answers come as signals."""

    async def send_requests(self, to: CrmAddress, requests: Sequence[CrmRequest], prove: ProveRight) -> None:
        """Sends requests. Raises Unavailable (not sent), UnknownOutcome (perhaps sent) or Rejected (refused by the
        CRM).

        `prove` is called just before the requests leave, and raises Superseded if the right to order is lost.
        """
        ...


class EdgeStore(Protocol):
    """The edge family's store: CRM connections and policies. Each method is one transaction."""

    async def accept_connection(self, fact: ConnectReport, doubt: CheckProof) -> ConnectionReply:
        """Records a CRM's connection, if its notify-id, version and proof are right."""
        ...

    async def record_answer(self, fact: AnswerReport, doubt: CheckProof) -> AnswerResult:
        """Applies a CRM's message about its cloudlet, or names the action that must handle it."""
        ...

    async def record_disconnect(self, fact: DisconnectReport, doubt: CheckProof) -> AnswerResult:
        """Records that a connection is lost; the cloudlet goes Offline unless it has a newer one."""
        ...

    async def find_connection(self, path: str, notify_ids: list[int]) -> StoredReconnection:
        """Returns a current connection of the object's cloudlet that has one of these notify-ids."""
        ...

    async def record_ignored_messages(self, messages: Sequence[IgnoredMessage], at: datetime) -> int:
        """Writes history lines for messages that changed nothing."""
        ...

    async def list_expected_instances(self, cloudlet: str, after: str) -> ExpectedInstancesPage:
        """Returns a page of the instances that should exist on a cloudlet: those whose path comes after `after`."""
        ...

    async def plan_failover(self, cloudlet: str) -> FailoverPlan:
        """Finds for each app of the cloudlet a cluster on another cloudlet that it can move to."""
        ...

    async def read_policy(self, path: str) -> StoredPolicy:
        """Returns the policy as it is stored."""
        ...

    async def read_policy_facts(self, asked: PolicyFactsQuery) -> PolicyFacts:
        """Returns the sites and instances, or the cluster, that a policy decides on."""
        ...
