"""How the edge's workflows call their activities."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.edge import EdgeActivities
    from domain.edge import messages as wire
    from domain.edge.facts import AnswerFact, Connected, ConnectFact, LostFact, PolicyQuestion, Refuges, Rejoin, Told
    from domain.edge.messages import (
        Address,
        CrmConnect,
        CrmDisconnect,
        CrmRequest,
        CrmResponse,
        Ignored,
        IgnoredMany,
        Post,
        Reconnected,
    )
    from domain.edge.policies import Facts
    from domain.edge.proofs import statement
    from workflows.calls import CLOUD_HEARTBEAT, CLOUD_RETRY, locally

WEBHOOK_PATIENCE = timedelta(minutes=5)


async def send(to: Address, *requests: CrmRequest) -> None:
    """Requests to a CRM. By queue that is as quick as a write; a webhook may take its time, and fail for good."""
    post = Post(to=to, requests=list(requests))
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


async def everything(to: Address) -> int:
    """All data to a CRM that is Ready."""
    return await workflow.execute_activity_method(
        EdgeActivities.crm_everything,
        to,
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


async def connected(cloudlet: str, said: CrmConnect) -> Connected:
    """A CRM has connected: the inventory accepts or refuses it."""
    text = statement(wire.CRM_CONNECT, cloudlet, said.raw)
    fact = ConnectFact(cloudlet=cloudlet, said=said, at=workflow.now(), statement=text)
    return await locally(EdgeActivities.crm_connected, fact)


async def answered(cloudlet: str, said: CrmResponse) -> Told:
    """A CRM speaks of the cloudlet itself: the inventory judges it, or names the action whose business it is."""
    text = statement(wire.CRM_RESPONSE, cloudlet, said.raw)
    fact = AnswerFact(cloudlet=cloudlet, said=said, at=workflow.now(), statement=text)
    return await locally(EdgeActivities.crm_answered, fact)


async def lost(cloudlet: str, said: CrmDisconnect) -> Told:
    """A goodbye came from outside as it is; what we noticed ourselves did not come at all."""
    text = statement(wire.CRM_DISCONNECT, cloudlet, said.raw)
    fact = LostFact(cloudlet=cloudlet, said=said, at=workflow.now(), statement=text, noticed=not said.raw)
    return await locally(EdgeActivities.crm_lost, fact)


async def rejoined(path: str, told: Reconnected) -> Reconnected | None:
    """The connection that we were told of, as the inventory knows it; None if it does not."""
    found = await locally(EdgeActivities.crm_rejoined, Rejoin(path=path, notify_id=told.address.notify_id))
    return found.news


async def refuges(cloudlet: str) -> Refuges:
    """For each Ready app of a cloudlet: where else it can run, if anywhere."""
    return await locally(EdgeActivities.failover_plan, cloudlet)


async def facts(asked: PolicyQuestion) -> Facts:
    """What the inventory knows about a policy's question."""
    return await locally(EdgeActivities.policy_facts, asked)
