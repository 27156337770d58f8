"""What a worker needs for the edge: its workflows, and the activities beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from activities.edge.crm import CrmAudit, EdgeActivities, Letters
from activities.pages import list_all
from activities.verify import Audit
from domain.companions import Companion, CompanionRow
from domain.edge import messages
from domain.edge.ports import CrmTransport
from domain.edge.specs import PolicySpec
from domain.edge.tables import S
from domain.statetable import NONE
from domain.wire import ACTIONS_QUEUE, companion
from providers.edge.transports import QueueTransport, WebhookTransport
from store.edge.connected import connections
from store.edge.inventory import SqlEdge
from workers.context import WorkerContext
from workflows.edge.cloudlet import BringUpCloudlet, DeleteCloudlet, MaintainCloudlet, RekeyCloudlet
from workflows.edge.instance import ChangeInstance
from workflows.edge.link import CloudletLink, LinkState
from workflows.edge.policy import FollowDemand, KeepPolicy, LoopState
from workflows.edge.upgrade import UpgradeCloudlet

WORKFLOWS: list[type] = [
    *(ChangeInstance, BringUpCloudlet, UpgradeCloudlet, MaintainCloudlet, RekeyCloudlet, DeleteCloudlet),
    *(CloudletLink, KeepPolicy, FollowDemand),
]


def activities(context: WorkerContext) -> dict[str, list[Callable[..., Any]]]:
    """All on the actions' queue: CRMs run their own activities on queues of their own."""
    ports: Mapping[str, CrmTransport] = {"queue": QueueTransport(context.client), "webhook": WebhookTransport()}
    edge = EdgeActivities(SqlEdge(context.database), ports, context.fence)
    ours: list[Callable[..., Any]] = [
        edge.crm_send,
        edge.crm_everything,
        edge.crm_probe,
        Letters(context.client).crm_hand_in,
        edge.crm_connected,
        edge.crm_answered,
        edge.crm_lost,
        edge.crm_rejoined,
    ]
    return {ACTIONS_QUEUE: [*ours, edge.crm_ignored, edge.failover_plan, edge.policy_kept, edge.policy_facts]}


def companions(context: WorkerContext) -> list[CompanionRow]:
    """A loop for each policy that is Active, and a link for each cloudlet that a CRM is connected to."""

    async def loops() -> AsyncIterator[Companion]:
        async for policy in list_all(context.inventory, "policy", ""):
            if (policy.status, policy.target_action) == (S.ACTIVE, NONE):
                state = LoopState(policy=policy.path, spec=PolicySpec.model_validate(policy.spec))
                yield Companion(companion(policy.path, messages.LOOP), policy.path, state)

    async def links() -> AsyncIterator[Companion]:
        async for addresses in connections(context.database):
            cloudlet, newest = addresses[0].cloudlet, max(each.notify_id for each in addresses)
            state = LinkState(cloudlet=cloudlet, notify_id=newest, open=addresses)
            yield Companion(companion(cloudlet, messages.LINK), cloudlet, state)

    return [
        CompanionRow(messages.FOLLOW_DEMAND, "demand loop", loops),
        CompanionRow(messages.CLOUDLET_LINK, "link", links),
    ]


def audits(context: WorkerContext) -> list[Audit]:
    """Instances against what the CRMs had when they last connected."""
    return [CrmAudit(context.inventory).audit]
