"""What a worker needs for the edge: its workflows, and the activities beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from activities.edge import CrmBooks, EdgeActivities, Letters
from activities.pages import every
from activities.verifying import Audit
from domain.companions import Companion, CompanionRow
from domain.edge import messages
from domain.edge.ports import Crm
from domain.edge.specs import PolicySpec
from domain.edge.tables import S
from domain.machine import NONE
from domain.wire import ACTIONS_QUEUE, companion
from providers.edge.posts import QueueCrm, WebhookCrm
from store.edge.connected import connections
from store.edge.inventory import SqlEdge
from workers.parts import Parts
from workflows.edge.cloudlet import BringUpCloudlet, DeleteCloudlet, MaintainCloudlet, RekeyCloudlet
from workflows.edge.instance import ChangeInstance
from workflows.edge.link import CloudletLink, LinkState
from workflows.edge.policy import FollowDemand, KeepPolicy, LoopState
from workflows.edge.upgrade import UpgradeCloudlet

WORKFLOWS: list[type] = [
    *(ChangeInstance, BringUpCloudlet, UpgradeCloudlet, MaintainCloudlet, RekeyCloudlet, DeleteCloudlet),
    *(CloudletLink, KeepPolicy, FollowDemand),
]


def activities(parts: Parts) -> dict[str, list[Callable[..., Any]]]:
    """All on the actions' queue: CRMs run their own activities on queues of their own."""
    ports: Mapping[str, Crm] = {"queue": QueueCrm(parts.client), "webhook": WebhookCrm()}
    edge = EdgeActivities(SqlEdge(parts.database), ports, parts.fence)
    ours: list[Callable[..., Any]] = [
        edge.crm_send,
        edge.crm_everything,
        edge.crm_probe,
        Letters(parts.client).crm_hand_in,
        edge.crm_connected,
        edge.crm_answered,
        edge.crm_lost,
        edge.crm_rejoined,
    ]
    return {ACTIONS_QUEUE: [*ours, edge.crm_ignored, edge.failover_plan, edge.policy_kept, edge.policy_facts]}


def companions(parts: Parts) -> list[CompanionRow]:
    """A loop for each policy that is Active, and a link for each cloudlet that a CRM is connected to."""

    async def loops() -> AsyncIterator[Companion]:
        async for policy in every(parts.inventory, "policy", ""):
            if (policy.status, policy.target_action) == (S.ACTIVE, NONE):
                state = LoopState(policy=policy.path, spec=PolicySpec.model_validate(policy.spec))
                yield Companion(companion(policy.path, messages.LOOP), policy.path, state)

    async def links() -> AsyncIterator[Companion]:
        async for addresses in connections(parts.database):
            cloudlet, newest = addresses[0].cloudlet, max(each.notify_id for each in addresses)
            state = LinkState(cloudlet=cloudlet, notify_id=newest, open=addresses)
            yield Companion(companion(cloudlet, messages.LINK), cloudlet, state)

    return [
        CompanionRow(messages.FOLLOW_DEMAND, "demand loop", loops),
        CompanionRow(messages.CLOUDLET_LINK, "link", links),
    ]


def audits(parts: Parts) -> list[Audit]:
    """Instances against what the CRMs had when they last connected."""
    return [CrmBooks(parts.inventory).audit]
