"""How the edge's workflows call their activities."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.edge.crm import EdgeActivities, UpdateDeliveryActivities
    from activities.retry import ONCE
    from domain.edge import messages as edge_messages
    from domain.edge.messages import (
        CrmAddress,
        CrmConnect,
        CrmDisconnect,
        CrmRequest,
        CrmResponse,
        CrmVerb,
        DeliverSignal,
        IgnoredMessage,
        IgnoredMessages,
        ReceivedSignal,
        Reconnected,
        SendAllData,
        SendCrmRequests,
    )
    from domain.edge.proofs import text_to_sign
    from domain.edge.reports import (
        AnswerReport,
        AnswerResult,
        ConnectionReply,
        ConnectReport,
        DisconnectReport,
        ReconnectionQuery,
        SignedStatement,
    )
    from domain.errors import format_one_line
    from domain.model import Grant
    from workflows.calls import make_key, run_local_activity, run_provider_activity, run_short_activity

WEBHOOK_TIMEOUT = timedelta(minutes=5)
PROBE_TIMEOUT = timedelta(seconds=10)  # a worker that dies in a probe is missed after that


async def send_requests(to: CrmAddress, *requests: CrmRequest) -> None:
    """Sends requests to a CRM. A queue is as quick as a store write; a webhook may be slow, or fail for good."""
    first = requests[0]
    post = SendCrmRequests(to=to, requests=list(requests), path=first.reply_to or first.path, epoch=first.epoch)
    if to.transport == "queue":
        await run_local_activity(EdgeActivities.send_crm_requests, post)
    else:
        summary, attempt = f"{first.verb} {first.path}", timedelta(seconds=30)
        await run_provider_activity(EdgeActivities.send_crm_requests, post, WEBHOOK_TIMEOUT, summary, attempt=attempt)


async def probe_crm(to: CrmAddress, verb: CrmVerb) -> str:
    """Pings or acknowledges a CRM without a session. Returns why it did not answer, or an empty string."""
    post = SendCrmRequests(to=to, requests=[CrmRequest(path=to.cloudlet, verb=verb, **to.connection_fields())])
    patience = 2 * PROBE_TIMEOUT  # an absent worker tells nothing about the CRM
    summary = f"{verb} {to.version} of {to.cloudlet}"
    try:
        return await run_short_activity(EdgeActivities.probe_crm, post, PROBE_TIMEOUT, summary, patience, retry=ONCE)
    except ActivityError as error:
        return format_one_line(error.cause or error, 200)


async def deliver_by_update(workflow_id: str, letter: ReceivedSignal) -> str:
    """Delivers a message to an action at its signal limit. Returns why it was refused, or an empty string."""
    order = DeliverSignal(workflow=workflow_id, letter=letter)
    summary = f"{letter.signal} to {workflow_id}, which may hear no more signals"
    try:
        return await run_short_activity(
            UpdateDeliveryActivities.deliver_by_update, order, timedelta(seconds=10), summary, timedelta(minutes=1)
        )
    except ActivityError as error:
        return format_one_line(error.cause or error, 200)


async def send_all_data(to: CrmAddress, grant: Grant | None = None) -> int:
    """Sends all data to a CRM that is Ready, for an action or for the link."""
    order = SendAllData(to=to, path=grant.path, epoch=grant.epoch) if grant else SendAllData(to=to)
    summary, attempt = f"all data to {to.version} of {to.cloudlet}", timedelta(minutes=2)
    return await run_provider_activity(
        EdgeActivities.send_all_data, order, timedelta(minutes=10), summary, attempt=attempt
    )


async def record_ignored_messages(*messages: IgnoredMessage) -> None:
    """Records ignored messages in the histories of their objects."""
    keyed = [message.model_copy(update={"key": make_key()}) for message in messages]
    await run_local_activity(EdgeActivities.record_ignored_messages, IgnoredMessages(messages=keyed, at=workflow.now()))


async def report_crm_connection(cloudlet: str, pages: list[CrmConnect], kept: bool = True) -> ConnectionReply:
    """Reports a CRM's connection to the inventory, which accepts or refuses it."""
    instances = {path: seen for page in pages for path, seen in page.instances.items()}
    said = pages[0].model_copy(update={"instances": {}})
    fact = ConnectReport(
        said=said, instances=instances, **_report_fields(edge_messages.CRM_CONNECT, cloudlet, kept, *pages)
    )
    return await run_local_activity(EdgeActivities.accept_crm_connection, fact)


async def report_crm_answer(cloudlet: str, said: CrmResponse, kept: bool = True) -> AnswerResult:
    """Reports a CRM's message about its cloudlet to the inventory, which applies it or names the owning action."""
    fact = AnswerReport(said=said, **_report_fields(edge_messages.CRM_RESPONSE, cloudlet, kept, said))
    return await run_local_activity(EdgeActivities.record_crm_answer, fact)


async def report_crm_disconnect(cloudlet: str, said: CrmDisconnect, kept: bool = True) -> AnswerResult:
    """Reports a lost connection. A CRM's own disconnect has a raw message; a loss that the link noticed has none."""
    fact = DisconnectReport(
        said=said,
        noticed=not said.fields_as_received,
        **_report_fields(edge_messages.CRM_DISCONNECT, cloudlet, kept, said),
    )
    return await run_local_activity(EdgeActivities.record_crm_disconnect, fact)


def _report_fields(
    signal: str, cloudlet: str, kept: bool, *messages: CrmConnect | CrmResponse | CrmDisconnect
) -> dict[str, Any]:
    signed = [
        SignedStatement(statement=text_to_sign(signal, cloudlet, message.fields_as_received), proof=message.proof)
        for message in messages
    ]
    return {"cloudlet": cloudlet, "at": workflow.now(), "signed": signed, "kept": kept, "key": make_key()}


async def confirm_reconnection(path: str, claimed: list[int]) -> Reconnected | None:
    """Confirms reported reconnections with the inventory; None if it has no connection with one of these notify-ids."""
    query = ReconnectionQuery(path=path, notify_id=claimed[0], others=claimed[1:])
    return (await run_local_activity(EdgeActivities.find_crm_connection, query)).news
