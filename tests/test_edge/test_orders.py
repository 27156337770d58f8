"""Requests to CRMs: the fence checks them just before they leave, and a CRM refuses a lower epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from activities.edge.crm import EdgeActivities
from activities.fence import Fence
from domain.edge.messages import CrmAddress, CrmRequest, CrmRequests, CrmVerb, SendAllData, SendCrmRequests
from domain.edge.ports import EdgeStore, ProveRight
from domain.edge.reports import ExpectedInstancesPage
from domain.errors import Superseded
from domain.ports import Inventory
from providers.edge.transports import TaskQueueTransport, WebhookTransport
from tests.environment import activity_environment
from tests.test_edge.kit import Edge, wait_until_idle
from tests.test_edge.test_transports import answering, freely

BERLIN = "org:acme:cloudlet:berlin"
CLUSTER = f"{BERLIN}:cluster:c1"
TO = CrmAddress(cloudlet=BERLIN, version="v1", notify_id=1)


def order(epoch: int = 7, verb: CrmVerb = CrmVerb.CREATE) -> CrmRequest:
    return CrmRequest(path=CLUSTER, verb=verb, epoch=epoch, **TO.connection_fields())


@dataclass
class Actions:
    """What of an inventory a fence asks for."""

    open: bool = True

    async def is_action_open(self, path: str, epoch: int) -> bool:
        return self.open


@dataclass
class Port:
    """A way to a CRM on which an action can end while its order lies there."""

    actions: Actions
    ends: bool = False
    sent: list[CrmRequest] = field(default_factory=list)

    async def send_requests(self, to: CrmAddress, requests: Sequence[CrmRequest], prove: ProveRight) -> None:
        self.actions.open = self.actions.open and not self.ends
        await prove()
        self.sent.extend(requests)


async def heard() -> bool:
    return True


def activities(port: Port) -> EdgeActivities:
    fence = Fence(cast(Inventory, port.actions), heard)
    return EdgeActivities(cast(EdgeStore, None), {"queue": port}, fence)


async def test_an_order_of_an_open_action_goes_out_and_carries_its_epoch() -> None:
    port = Port(Actions())
    post = SendCrmRequests(to=TO, requests=[order()], path=CLUSTER, epoch=7)
    await activity_environment().run(activities(port).send_crm_requests, post)
    assert [request.epoch for request in port.sent] == [7]


@pytest.mark.parametrize("already", [True, False])
async def test_an_action_that_ends_between_the_decision_and_the_post_orders_nothing(already: bool) -> None:
    port = Port(Actions(open=not already), ends=True)
    post = SendCrmRequests(to=TO, requests=[order()], path=CLUSTER, epoch=7)
    with pytest.raises(ApplicationError, match="no order was given") as failed:
        await activity_environment().run(activities(port).send_crm_requests, post)
    assert failed.value.non_retryable
    assert port.sent == []


async def test_what_the_link_says_itself_needs_no_action() -> None:
    port = Port(Actions(open=False))
    post = SendCrmRequests(to=TO, requests=[order(epoch=0, verb=CrmVerb.ACK)])
    await activity_environment().run(activities(port).send_crm_requests, post)
    assert len(port.sent) == 1


async def test_all_data_of_an_action_that_is_over_is_not_sent() -> None:
    class Empty:
        async def list_expected_instances(self, cloudlet: str, after: str) -> Any:
            return ExpectedInstancesPage(items=[])

    port = Port(Actions(open=False))
    edge = EdgeActivities(cast(EdgeStore, Empty()), {"queue": port}, Fence(cast(Inventory, port.actions), heard))
    with pytest.raises(ApplicationError, match="no order was given"):
        await activity_environment().run(edge.send_all_data, SendAllData(to=TO, path=BERLIN, epoch=7))
    assert port.sent == []


class Tasks:
    """Of a client, what a queue needs: it keeps what was put there."""

    def __init__(self) -> None:
        self.put: list[CrmRequests] = []

    async def start_activity(self, name: str, requests: CrmRequests, **_options: Any) -> None:
        self.put.append(requests)


async def test_of_orders_that_travel_together_only_those_with_a_right_leave() -> None:
    async def lost() -> None:
        raise Superseded("the action is over", final=True)

    tasks = Tasks()
    port = TaskQueueTransport(cast(Client, tasks))
    good, bad = port.send_requests(TO, [order(8)], freely), port.send_requests(TO, [order(7)], lost)
    ends = await asyncio.gather(good, bad, return_exceptions=True)
    assert ends[0] is None
    assert isinstance(ends[1], Superseded)
    assert [[request.epoch for request in some.requests] for some in tasks.put] == [[8]]


async def test_a_webhook_is_not_called_without_a_right() -> None:
    async def lost() -> None:
        raise Superseded("the action is over", final=True)

    async with answering(b"HTTP/1.0 202 thanks\r\n\r\n") as url:
        to = TO.model_copy(update={"transport": "webhook", "url": url})
        with pytest.raises(Superseded):
            await WebhookTransport(["*"]).send_requests(to, [order()], lost)


async def test_a_crm_refuses_an_order_of_an_action_before_the_last_one_it_has_seen(edge: Edge) -> None:
    await edge.up()
    cluster = edge.at("berlin", "c1")
    await edge.user.do(cluster, "create", spec={})
    epoch = (await edge.see(cluster)).epoch
    agent, _, platform = edge.crms["berlin-v1"]
    late = CrmRequest(path=cluster, verb=CrmVerb.DELETE, notify_id=agent.notify_id, version="v1", epoch=epoch - 1)
    await agent.crm_requests(CrmRequests(requests=[late]))
    await wait_until_idle(agent._jobs, cluster)
    assert edge.things() == ["c1"]
    assert platform.list_applied_verbs(cluster) == ["create"]
    assert await edge.ignored(cluster) == []  # whoever acts now is not disturbed
    now = late.model_copy(update={"epoch": epoch + 1})
    await agent.crm_requests(CrmRequests(requests=[now]))
    await wait_until_idle(agent._jobs, cluster)
    assert edge.things() == []
