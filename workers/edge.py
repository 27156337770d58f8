"""The edge family in a worker. CRMs run their own activities, on queues of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from activities.edge.crm import EdgeActivities, UpdateDeliveryActivities
from activities.edge.listing import CrmListing
from activities.objectpages import list_all_objects
from activities.orphans import ProviderListing
from domain.companions import Companion, CompanionType
from domain.edge import KINDS, messages
from domain.edge.ports import CrmTransport
from domain.edge.specs import PolicySpec
from domain.edge.tables import S
from domain.statetable import NONE
from domain.wire import ACTIONS_QUEUE, companion_id
from providers.edge.transports import TaskQueueTransport, WebhookTransport
from store.edge.connections import list_open_connections
from store.edge.hooks import HOOKS
from store.edge.inventory import SqlEdgeStore
from store.hooks import HooksByKind
from workers.discovery import collect_activities
from workers.family import ActivitiesByQueue, Family
from workflows.edge.cloudlet import BringUpCloudlet, DeleteCloudlet, MaintainCloudlet, RekeyCloudlet
from workflows.edge.instance import ChangeInstance
from workflows.edge.link import CloudletLink, LinkState
from workflows.edge.policy import FollowDemand, KeepPolicy, PolicyLoopState
from workflows.edge.upgrade import UpgradeCloudlet


class EdgeFamily(Family):
    """The edge family for a worker: cloudlets, cluster and app instances, and policies."""

    name = "edge"
    kinds = KINDS
    workflows = (
        *(ChangeInstance, BringUpCloudlet, UpgradeCloudlet, MaintainCloudlet, RekeyCloudlet, DeleteCloudlet),
        KeepPolicy,
    )
    companion_workflows = (CloudletLink, FollowDemand)

    @classmethod
    def hooks(cls) -> HooksByKind:
        return HOOKS

    def activities(self) -> ActivitiesByQueue:
        client = self.context.client
        webhook = WebhookTransport(self.context.settings.webhooks)
        transports: dict[str, CrmTransport] = {"queue": TaskQueueTransport(client), "webhook": webhook}
        edge = EdgeActivities(SqlEdgeStore(self.context.database), transports, self.context.fence)
        return {ACTIONS_QUEUE: collect_activities(edge, UpdateDeliveryActivities(client))}

    def companions(self) -> Sequence[CompanionType]:
        """Declares a demand loop per Active policy, and a link per cloudlet with a connected CRM."""
        return [
            CompanionType(messages.FOLLOW_DEMAND, "demand loop", self._policy_companions),
            CompanionType(messages.CLOUDLET_LINK, "link", self._link_companions),
        ]

    def listings(self) -> Sequence[ProviderListing]:
        """Lists what the CRMs had when they last connected, for the audit."""
        return [CrmListing(self.context.inventory)]

    async def _policy_companions(self) -> AsyncIterator[Companion]:
        async for policy in list_all_objects(self.context.inventory, "policy", ""):
            if (policy.status, policy.target_action) == (S.ACTIVE, NONE):
                state = PolicyLoopState(policy=policy.path, spec=PolicySpec.model_validate(policy.spec))
                yield Companion(companion_id(policy.path, messages.LOOP_ROLE), policy.path, state)

    async def _link_companions(self) -> AsyncIterator[Companion]:
        async for addresses in list_open_connections(self.context.database):
            cloudlet, newest = addresses[0].cloudlet, max(address.notify_id for address in addresses)
            state = LinkState(cloudlet=cloudlet, notify_id=newest, open=addresses)
            yield Companion(companion_id(cloudlet, messages.LINK_ROLE), cloudlet, state)
