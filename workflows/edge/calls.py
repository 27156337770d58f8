"""How the edge's workflows call their activities."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.edge import EdgeActivities, Letters
    from domain.edge import messages as wire
    from domain.edge.facts import (
        AnswerFact,
        Connected,
        ConnectFact,
        KeptPolicy,
        LostFact,
        PolicyQuestion,
        Refuges,
        Rejoin,
        Signed,
        Told,
    )
    from domain.edge.messages import (
        Address,
        AllData,
        CrmConnect,
        CrmDisconnect,
        CrmRequest,
        CrmResponse,
        HandIn,
        Ignored,
        IgnoredMany,
        Letter,
        Post,
        Reconnected,
        Verb,
    )
    from domain.edge.policies import Facts
    from domain.edge.proofs import statement
    from domain.errors import brief
    from domain.model import Grant
    from workflows.calls import CLOUD_HEARTBEAT, CLOUD_RETRY, locally

WEBHOOK_PATIENCE = timedelta(minutes=5)
PROBE_PATIENCE = timedelta(seconds=15)


async def send(to: Address, *requests: CrmRequest) -> None:
    """Requests to a CRM. By queue that is as quick as a write; a webhook may take its time, and fail for good."""
    first = requests[0]
    post = Post(to=to, requests=list(requests), path=first.reply_to or first.path, epoch=first.epoch)
    if to.transport == "queue":
        await locally(EdgeActivities.crm_send, post)
        return
    await workflow.execute_activity_method(
        EdgeActivities.crm_send,
        post,
        start_to_close_timeout=timedelta(seconds=30),
        schedule_to_close_timeout=WEBHOOK_PATIENCE,
        heartbeat_timeout=CLOUD_HEARTBEAT,
        retry_policy=CLOUD_RETRY,
        summary=f"{requests[0].verb} {requests[0].path}",
    )


async def probe(to: Address, verb: Verb) -> str:
    """Is a CRM without a session there? Returns why not, if not."""
    post = Post(to=to, requests=[CrmRequest(path=to.cloudlet, verb=verb, **to.connection())])
    try:
        return await workflow.execute_activity_method(
            EdgeActivities.crm_probe,
            post,
            start_to_close_timeout=PROBE_PATIENCE,
            schedule_to_close_timeout=2 * PROBE_PATIENCE,  # a worker that is away says nothing about the CRM
            retry_policy=RetryPolicy(maximum_attempts=1),
            summary=f"{verb} {to.version} of {to.cloudlet}",
        )
    except ActivityError as error:
        return brief(error.cause or error, 200)


async def hand_in(workflow_id: str, letter: Letter) -> str:
    """Bring a letter to an action that may hear no more signals. Returns why it was not taken, if so."""
    try:
        return await workflow.execute_activity_method(
            Letters.crm_hand_in,
            HandIn(workflow=workflow_id, letter=letter),
            start_to_close_timeout=timedelta(seconds=10),
            schedule_to_close_timeout=timedelta(minutes=1),
            retry_policy=CLOUD_RETRY,
            summary=f"{letter.signal} to {workflow_id}, which may hear no more signals",
        )
    except ActivityError as error:
        return brief(error.cause or error, 200)


async def everything(to: Address, grant: Grant | None = None) -> int:
    """All data to a CRM that is Ready; on behalf of an action, or of nobody."""
    right = {"path": grant.path, "epoch": grant.epoch} if grant else {}
    return await workflow.execute_activity_method(
        EdgeActivities.crm_everything,
        AllData.model_validate({"to": to, **right}),
        start_to_close_timeout=timedelta(minutes=2),
        schedule_to_close_timeout=timedelta(minutes=10),
        heartbeat_timeout=CLOUD_HEARTBEAT,
        retry_policy=CLOUD_RETRY,
        summary=f"all data to {to.version} of {to.cloudlet}",
    )


async def ignore(*messages: Ignored) -> None:
    """Keep messages that changed nothing."""
    kept = IgnoredMany(messages=list(messages), at=workflow.now())
    await locally(EdgeActivities.crm_ignored, kept)


async def connected(cloudlet: str, pages: list[CrmConnect], kept: bool = True) -> Connected:
    """A CRM has connected: the inventory accepts or refuses it."""
    instances = {path: seen for page in pages for path, seen in page.instances.items()}
    said = pages[0].model_copy(update={"instances": {}})
    fact = ConnectFact(said=said, instances=instances, **_fact(wire.CRM_CONNECT, cloudlet, kept, *pages))
    return await locally(EdgeActivities.crm_connected, fact)


async def answered(cloudlet: str, said: CrmResponse, kept: bool = True) -> Told:
    """A CRM speaks of the cloudlet itself: the inventory judges it, or names the action whose business it is."""
    fact = AnswerFact(said=said, **_fact(wire.CRM_RESPONSE, cloudlet, kept, said))
    return await locally(EdgeActivities.crm_answered, fact)


async def lost(cloudlet: str, said: CrmDisconnect, kept: bool = True) -> Told:
    """A goodbye came from outside as it is; what we noticed ourselves did not come at all."""
    fact = LostFact(said=said, noticed=not said.raw, **_fact(wire.CRM_DISCONNECT, cloudlet, kept, said))
    return await locally(EdgeActivities.crm_lost, fact)


def _fact(signal: str, cloudlet: str, kept: bool, *said: CrmConnect | CrmResponse | CrmDisconnect) -> dict[str, Any]:
    signed = [Signed(statement=statement(signal, cloudlet, each.raw), proof=each.proof) for each in said]
    return {"cloudlet": cloudlet, "at": workflow.now(), "signed": signed, "kept": kept}


async def rejoined(path: str, told: Reconnected) -> Reconnected | None:
    """The connection that we were told of, as the inventory knows it; None if it does not."""
    found = await locally(EdgeActivities.crm_rejoined, Rejoin(path=path, notify_id=told.address.notify_id))
    return found.news


async def refuges(cloudlet: str) -> Refuges:
    """For each Ready app of a cloudlet: where else it can run, if anywhere."""
    return await locally(EdgeActivities.failover_plan, cloudlet)


async def policy_kept(path: str) -> KeptPolicy:
    """A policy as it is in the inventory."""
    return await locally(EdgeActivities.policy_kept, path)


async def facts(asked: PolicyQuestion) -> Facts:
    """What the inventory knows about a policy's question."""
    return await locally(EdgeActivities.policy_facts, asked)
