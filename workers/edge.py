"""What a worker needs for the edge: its workflows, and the activities beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from activities.edge import CrmBooks, EdgeActivities
from activities.verifying import Audit
from domain.edge.ports import Crm
from domain.wire import ACTIONS_QUEUE
from providers.edge.posts import QueueCrm, WebhookCrm
from store.edge.inventory import SqlEdge
from workers.parts import Parts
from workflows.edge.cloudlet import BringUpCloudlet, DeleteCloudlet, MaintainCloudlet, RekeyCloudlet
from workflows.edge.instance import ChangeInstance
from workflows.edge.link import CloudletLink
from workflows.edge.policy import FollowDemand, KeepPolicy
from workflows.edge.upgrade import UpgradeCloudlet

WORKFLOWS: list[type] = [
    *(ChangeInstance, BringUpCloudlet, UpgradeCloudlet, MaintainCloudlet, RekeyCloudlet, DeleteCloudlet),
    *(CloudletLink, KeepPolicy, FollowDemand),
]


def activities(parts: Parts) -> dict[str, list[Callable[..., Any]]]:
    """All on the actions' queue: CRMs run their own activities on queues of their own."""
    ports: Mapping[str, Crm] = {"queue": QueueCrm(parts.client), "webhook": WebhookCrm()}
    edge = EdgeActivities(SqlEdge(parts.database), ports)
    ours: list[Callable[..., Any]] = [
        edge.crm_send,
        edge.crm_everything,
        edge.crm_connected,
        edge.crm_answered,
        edge.crm_lost,
        edge.crm_rejoined,
    ]
    return {ACTIONS_QUEUE: [*ours, edge.crm_ignored, edge.failover_plan, edge.policy_facts]}


def audits(parts: Parts) -> list[Audit]:
    """Instances against what the CRMs had when they last connected."""
    return [CrmBooks(parts.inventory).audit]
