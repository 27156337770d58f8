"""How the edge's workflows call their activities."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.edge.crm import EdgeActivities, Letters
    from activities.retry import ONCE
    from domain.edge import messages as wire
    from domain.edge.facts import (
        AnswerFact,
        CloudletAnswer,
        Connected,
        ConnectFact,
        LostFact,
        RejoinQuery,
        SignedText,
    )
    from domain.edge.messages import (
        AllData,
        CrmAddress,
        CrmConnect,
        CrmDisconnect,
        CrmPost,
        CrmRequest,
        CrmResponse,
        CrmVerb,
        HandIn,
        IgnoredMessage,
        IgnoredMessages,
        Letter,
        Reconnected,
    )
    from domain.edge.proofs import statement
    from domain.errors import one_line
    from domain.model import Grant
    from workflows.calls import run_local, run_quick, run_remote

WEBHOOK_PATIENCE = timedelta(minutes=5)
PROBE_PATIENCE = timedelta(seconds=15)


async def send(to: CrmAddress, *requests: CrmRequest) -> None:
    """Sends requests to a CRM. A queue is as quick as a store write; a webhook may be slow, or fail for good."""
    first = requests[0]
    post = CrmPost(to=to, requests=list(requests), path=first.reply_to or first.path, epoch=first.epoch)
    if to.transport == "queue":
        await run_local(EdgeActivities.crm_send, post)
    else:
        summary, attempt = f"{first.verb} {first.path}", timedelta(seconds=30)
        await run_remote(EdgeActivities.crm_send, post, WEBHOOK_PATIENCE, summary, attempt=attempt)


async def probe(to: CrmAddress, verb: CrmVerb) -> str:
    """Pings or acknowledges a CRM without a session. Returns why it did not answer, or an empty string."""
    post = CrmPost(to=to, requests=[CrmRequest(path=to.cloudlet, verb=verb, **to.connection())])
    patience = 2 * PROBE_PATIENCE  # an absent worker tells nothing about the CRM
    summary = f"{verb} {to.version} of {to.cloudlet}"
    try:
        return await run_quick(EdgeActivities.crm_probe, post, PROBE_PATIENCE, summary, patience, retry=ONCE)
    except ActivityError as error:
        return one_line(error.cause or error, 200)


async def hand_in(workflow_id: str, letter: Letter) -> str:
    """Delivers a message to an action at its signal limit. Returns why it was refused, or an empty string."""
    order = HandIn(workflow=workflow_id, letter=letter)
    summary = f"{letter.signal} to {workflow_id}, which may hear no more signals"
    try:
        return await run_quick(Letters.crm_hand_in, order, timedelta(seconds=10), summary, timedelta(minutes=1))
    except ActivityError as error:
        return one_line(error.cause or error, 200)


async def everything(to: CrmAddress, grant: Grant | None = None) -> int:
    """Sends all data to a CRM that is Ready, for an action or for the link."""
    order = AllData(to=to, path=grant.path, epoch=grant.epoch) if grant else AllData(to=to)
    summary, attempt = f"all data to {to.version} of {to.cloudlet}", timedelta(minutes=2)
    return await run_remote(EdgeActivities.crm_everything, order, timedelta(minutes=10), summary, attempt=attempt)


async def ignore(*messages: IgnoredMessage) -> None:
    """Records ignored messages in the histories of their objects."""
    await run_local(EdgeActivities.crm_ignored, IgnoredMessages(messages=list(messages), at=workflow.now()))


async def connected(cloudlet: str, pages: list[CrmConnect], kept: bool = True) -> Connected:
    """Reports a CRM's connection to the inventory, which accepts or refuses it."""
    instances = {path: seen for page in pages for path, seen in page.instances.items()}
    said = pages[0].model_copy(update={"instances": {}})
    fact = ConnectFact(said=said, instances=instances, **_fact(wire.CRM_CONNECT, cloudlet, kept, *pages))
    return await run_local(EdgeActivities.crm_connected, fact)


async def answered(cloudlet: str, said: CrmResponse, kept: bool = True) -> CloudletAnswer:
    """Reports a CRM's message about its cloudlet to the inventory, which applies it or names the owning action."""
    fact = AnswerFact(said=said, **_fact(wire.CRM_RESPONSE, cloudlet, kept, said))
    return await run_local(EdgeActivities.crm_answered, fact)


async def lost(cloudlet: str, said: CrmDisconnect, kept: bool = True) -> CloudletAnswer:
    """Reports a lost connection. A CRM's own disconnect has a raw message; a loss that the link noticed has none."""
    fact = LostFact(said=said, noticed=not said.raw, **_fact(wire.CRM_DISCONNECT, cloudlet, kept, said))
    return await run_local(EdgeActivities.crm_lost, fact)


def _fact(
    signal: str, cloudlet: str, kept: bool, *messages: CrmConnect | CrmResponse | CrmDisconnect
) -> dict[str, Any]:
    signed = [
        SignedText(statement=statement(signal, cloudlet, message.raw), proof=message.proof) for message in messages
    ]
    return {"cloudlet": cloudlet, "at": workflow.now(), "signed": signed, "kept": kept}


async def rejoined(path: str, claimed: Reconnected) -> Reconnected | None:
    """Confirms a reported reconnection with the inventory; None if it has no such connection."""
    confirmed = await run_local(
        EdgeActivities.crm_rejoined, RejoinQuery(path=path, notify_id=claimed.address.notify_id)
    )
    return confirmed.news
