"""Activities of the edge workflows: they send requests to CRMs, and record CRM messages in the inventory."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.fence import Fence
from activities.heartbeat import heartbeat
from activities.signatures import why_unproven
from domain.edge import messages as wire
from domain.edge.facts import (
    AnswerFact,
    CloudletAnswer,
    Connected,
    ConnectFact,
    CrmFact,
    KeptPolicy,
    LostFact,
    PolicyQuestion,
    Refuges,
    Rejoined,
    RejoinQuery,
    SignedText,
)
from domain.edge.messages import AllData, CrmAddress, CrmPost, CrmRequest, CrmVerb, HandIn, IgnoredMessages, OnBehalf
from domain.edge.policies import PolicyFacts
from domain.edge.ports import CheckProof, CrmTransport, EdgeInventory, ProveRight
from domain.errors import ProviderError, Rejected, one_line


class EdgeActivities:
    """Sends requests to CRMs, records their messages, and reads what policies decide by."""

    def __init__(self, inventory: EdgeInventory, ports: Mapping[str, CrmTransport], fence: Fence) -> None:
        self._inventory = inventory
        self._ports = ports
        self._fence = fence

    @activity.defn
    async def crm_send(self, post: CrmPost) -> None:
        """Sends requests to a CRM. Idempotent: a CRM recognises a repeated request by its key."""
        async with self._right(post) as prove:
            await self._send(post.to, post.requests, prove)

    @activity.defn
    async def crm_probe(self, post: CrmPost) -> str:
        """Probes a CRM that has no session. Returns why it cannot be reached, or an empty string."""
        try:
            await self._ports[post.to.transport].send(post.to, post.requests, _no_proof)
        except ProviderError as error:
            return one_line(error, 200)
        return ""

    @asynccontextmanager
    async def _right(self, order: OnBehalf) -> AsyncIterator[ProveRight]:
        """Yields the proof of the right to send for an action. Messages of the link itself need none."""
        if order.epoch:
            async with self._fence.right(order.path, order.epoch) as right:
                yield right.prove
        elif activity.info().is_local:
            yield _no_proof
        else:
            async with heartbeat():
                yield _no_proof

    async def _send(self, to: CrmAddress, requests: list[CrmRequest], prove: ProveRight) -> None:
        try:
            await self._ports[to.transport].send(to, requests, prove)
        except Rejected as error:
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from error

    @activity.defn
    async def crm_everything(self, asked: AllData) -> int:
        """Sends a CRM the specs of all instances of its cloudlet, so that it can restore lost state."""
        async with self._right(asked) as prove:
            items = await self._everything(asked.to.cloudlet)
            pages = wire.pages(items)
            sending = uuid.uuid4().hex
            for number, page in enumerate(pages, start=1):
                spec = {"sending": sending, "page": number, "of": len(pages), "instances": page}
                await self._send(asked.to, [_all_data(asked.to, spec)], prove)
            return len(items)

    async def _everything(self, cloudlet: str) -> dict[str, dict[str, Any]]:
        items: dict[str, dict[str, Any]] = {}
        while True:
            found = await self._inventory.expected_instances(cloudlet, next(reversed(items), ""))
            items |= {item.path: item.spec for item in found.items}
            if not found.more:
                return items

    @activity.defn
    async def crm_connected(self, fact: ConnectFact) -> Connected:
        return await self._inventory.accept_connection(fact, _doubt(fact))

    @activity.defn
    async def crm_answered(self, fact: AnswerFact) -> CloudletAnswer:
        return await self._inventory.record_answer(fact, _doubt(fact))

    @activity.defn
    async def crm_lost(self, fact: LostFact) -> CloudletAnswer:
        return await self._inventory.record_loss(fact, _noticed_here if fact.noticed else _doubt(fact))

    @activity.defn
    async def crm_rejoined(self, asked: RejoinQuery) -> Rejoined:
        """Looks up a connection that a signal announced to an action, as signals are not trusted."""
        return await self._inventory.find_connection(asked.path, asked.notify_id)

    @activity.defn
    async def crm_ignored(self, ignored: IgnoredMessages) -> int:
        """Records ignored messages in the histories of their objects."""
        return await self._inventory.record_ignored(ignored.messages, ignored.at)

    @activity.defn
    async def failover_plan(self, cloudlet: str) -> Refuges:
        return await self._inventory.find_refuges(cloudlet)

    @activity.defn
    async def policy_kept(self, path: str) -> KeptPolicy:
        return await self._inventory.stored_policy(path)

    @activity.defn
    async def policy_facts(self, asked: PolicyQuestion) -> PolicyFacts:
        return await self._inventory.policy_facts(asked)


class Letters:
    """Delivers CRM messages as updates to actions that have reached Temporal's signal limit."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def crm_hand_in(self, order: HandIn) -> str:
        """Delivers one message as an update. Returns why the action did not accept it, or an empty string."""
        info = activity.info()
        once = f"{info.workflow_run_id}-{info.activity_id}"
        try:
            await self._client.get_workflow_handle(order.workflow).execute_update(wire.HEAR, order.letter, id=once)
        except WorkflowUpdateFailedError as error:
            return one_line(error.cause)
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.RESOURCE_EXHAUSTED):
                return (
                    "no action is running on it" if error.status is RPCStatusCode.NOT_FOUND else one_line(error.message)
                )
            raise
        return ""


def _doubt(fact: CrmFact) -> CheckProof:
    """Returns the check of a message's proofs against the cloudlet's key; every page must be signed."""

    def of_all(key: str) -> str:
        found = (why_unproven(key, each.statement, each.proof) for each in fact.signed or [SignedText(statement="")])
        return next(filter(None, found), "")

    return of_all


async def _no_proof() -> None:
    """Proves nothing: for messages of the link, which need no right to order."""


def _noticed_here(_key: str) -> str:
    return ""


def _all_data(to: CrmAddress, spec: dict[str, Any]) -> CrmRequest:
    return CrmRequest(path=to.cloudlet, verb=CrmVerb.ALL_DATA, attempt=spec["page"], spec=spec, **to.connection())
