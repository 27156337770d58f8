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
from activities.heartbeat import send_heartbeats
from activities.signatures import why_unproven
from domain.edge import messages
from domain.edge.messages import (
    ActionReference,
    CrmAddress,
    CrmRequest,
    CrmVerb,
    DeliverSignal,
    IgnoredMessages,
    SendAllData,
    SendCrmRequests,
)
from domain.edge.policies import PolicyFacts
from domain.edge.ports import CheckProof, CrmTransport, EdgeStore, ProveRight
from domain.edge.reports import (
    AnswerReport,
    AnswerResult,
    ConnectionReply,
    ConnectReport,
    DisconnectReport,
    FailoverPlan,
    LinkReport,
    PolicyFactsQuery,
    ReconnectionQuery,
    SignedStatement,
    StoredPolicy,
    StoredReconnection,
)
from domain.errors import ProviderError, Rejected, format_one_line


class EdgeActivities:
    """Sends requests to CRMs, records their messages, and reads what policies decide by."""

    def __init__(self, inventory: EdgeStore, ports: Mapping[str, CrmTransport], fence: Fence) -> None:
        self._inventory = inventory
        self._ports = ports
        self._fence = fence

    @activity.defn(name="crm_send")
    async def send_crm_requests(self, post: SendCrmRequests) -> None:
        """Sends requests to a CRM. Idempotent: a CRM recognises a repeated request by its key."""
        async with self._right_to_send(post) as prove:
            await self._send_requests(post.to, post.requests, prove)

    @activity.defn(name="crm_probe")
    async def probe_crm(self, post: SendCrmRequests) -> str:
        """Probes a CRM that has no session. Returns why it cannot be reached, or an empty string."""
        try:
            await self._ports[post.to.transport].send_requests(post.to, post.requests, _prove_nothing)
        except ProviderError as error:
            return format_one_line(error, 200)
        return ""

    @asynccontextmanager
    async def _right_to_send(self, order: ActionReference) -> AsyncIterator[ProveRight]:
        """Yields the proof of the right to send for an action. Messages of the link itself need none."""
        if order.epoch:
            async with self._fence.right_to_order(order.path, order.epoch) as right:
                yield right.prove
        elif activity.info().is_local:
            yield _prove_nothing
        else:
            async with send_heartbeats():
                yield _prove_nothing

    async def _send_requests(self, to: CrmAddress, requests: list[CrmRequest], prove: ProveRight) -> None:
        try:
            await self._ports[to.transport].send_requests(to, requests, prove)
        except Rejected as error:
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from error

    @activity.defn(name="crm_everything")
    async def send_all_data(self, asked: SendAllData) -> int:
        """Sends a CRM the specs of all instances of its cloudlet, so that it can restore lost state."""
        async with self._right_to_send(asked) as prove:
            items, at = await self._read_all_data(asked.to.cloudlet)
            pages = messages.split_into_pages(items)
            to, sending = asked.to, uuid.uuid4().hex
            for number, page in enumerate(pages, start=1):
                spec = {"sending": sending, "at": at, "page": number, "of": len(pages), "instances": page}
                fields = to.connection_fields()
                request = CrmRequest(path=to.cloudlet, verb=CrmVerb.ALL_DATA, attempt=number, spec=spec, **fields)
                await self._send_requests(to, [request], prove)
            return len(items)

    async def _read_all_data(self, cloudlet: str) -> tuple[dict[str, dict[str, Any]], int]:
        """Returns the specs of all instances, and when the first of them was read."""
        items: dict[str, dict[str, Any]] = {}
        at = 0
        while True:
            page = await self._inventory.list_expected_instances(cloudlet, next(reversed(items), ""))
            items |= {item.path: item.spec for item in page.items}
            at = at or page.at
            if not page.more:
                return items, at

    @activity.defn(name="crm_connected")
    async def accept_crm_connection(self, fact: ConnectReport) -> ConnectionReply:
        return await self._inventory.accept_connection(fact, _make_proof_check(fact))

    @activity.defn(name="crm_answered")
    async def record_crm_answer(self, fact: AnswerReport) -> AnswerResult:
        return await self._inventory.record_answer(fact, _make_proof_check(fact))

    @activity.defn(name="crm_lost")
    async def record_crm_disconnect(self, fact: DisconnectReport) -> AnswerResult:
        check = (lambda _key: "") if fact.noticed else _make_proof_check(fact)  # what the link noticed is its own word
        return await self._inventory.record_disconnect(fact, check)

    @activity.defn(name="crm_rejoined")
    async def find_crm_connection(self, asked: ReconnectionQuery) -> StoredReconnection:
        """Looks up a connection that a signal announced to an action, as signals are not trusted."""
        return await self._inventory.find_connection(asked.path, [asked.notify_id, *asked.others])

    @activity.defn(name="crm_ignored")
    async def record_ignored_messages(self, ignored: IgnoredMessages) -> int:
        """Records ignored messages in the histories of their objects."""
        return await self._inventory.record_ignored_messages(ignored.messages, ignored.at)

    @activity.defn(name=messages.CRM_LATE)
    async def record_late_answer(self, late: IgnoredMessages) -> IgnoredMessages:
        """Records an answer that no action awaits, for somebody who may answer for the CRM by hand."""
        await self._inventory.record_ignored_messages(late.messages, late.at)
        return late

    @activity.defn(name="failover_plan")
    async def plan_failover(self, cloudlet: str) -> FailoverPlan:
        return await self._inventory.plan_failover(cloudlet)

    @activity.defn(name="policy_kept")
    async def read_policy(self, path: str) -> StoredPolicy:
        return await self._inventory.read_policy(path)

    @activity.defn(name="policy_facts")
    async def read_policy_facts(self, asked: PolicyFactsQuery) -> PolicyFacts:
        return await self._inventory.read_policy_facts(asked)


class UpdateDeliveryActivities:
    """Delivers CRM messages as updates to actions that have reached Temporal's signal limit."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name="crm_hand_in")
    async def deliver_by_update(self, order: DeliverSignal) -> str:
        """Delivers one message as an update. Returns why the action did not accept it, or an empty string."""
        info = activity.info()
        once = f"{info.workflow_run_id}-{info.activity_id}"
        try:
            await self._client.get_workflow_handle(order.workflow).execute_update(
                messages.HEAR_UPDATE, order.letter, id=once
            )
        except WorkflowUpdateFailedError as error:
            return format_one_line(error.cause)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return "no action is running on it"
            if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                raise
            return format_one_line(error.message)
        return ""


def _make_proof_check(fact: LinkReport) -> CheckProof:
    """Returns the check of a message's proofs against the cloudlet's key; every page must be signed."""

    def check_all_proofs(key: str) -> str:
        found = (
            why_unproven(key, statement.statement, statement.proof)
            for statement in fact.signed or [SignedStatement(statement="")]
        )
        return next(filter(None, found), "")

    return check_all_proofs


async def _prove_nothing() -> None:
    """Proves nothing: for messages of the link, which need no right to order."""
