"""The edge family in a worker. CRMs run their own activities, on queues of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from activities.edge.crm import EdgeActivities, UpdateDeliveryActivities
from activities.edge.listing import CrmListing
from activities.objectpages import list_all_objects
from activities.orphans import ProviderListing
from activities.workerfacts import RaiseObjection
from domain.companions import Companion, CompanionType
from domain.edge import KINDS, messages
from domain.edge.ports import CrmTransport
from domain.edge.specs import PolicySpec
from domain.edge.tables import S
from domain.errors import Category, Refused, Rejected
from domain.model import Request
from domain.statetable import NONE
from domain.wire import ACTIONS_QUEUE, companion_id
from providers.edge.token import CrmToken
from providers.edge.transports import SigningTransport, TaskQueueTransport, WebhookTransport
from store.edge.connections import list_open_connections
from store.edge.hooks import HOOKS
from store.edge.inventory import SqlEdgeStore
from store.hooks import HooksByKind
from workers.context import WorkerContext
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

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        file = context.settings.key_file
        self._signing_key = CrmToken(Path(file), required=True) if file else None
        self._webhook = WebhookTransport(context.settings.webhooks, self._signing_key)

    def activities(self) -> ActivitiesByQueue:
        client, key = self.context.client, self._signing_key
        transports: dict[str, CrmTransport] = {"queue": TaskQueueTransport(client), "webhook": self._webhook}
        if key:
            transports = {name: SigningTransport(transport, key) for name, transport in transports.items()}
        edge = EdgeActivities(SqlEdgeStore(self.context.database), transports, self.context.fence)
        return {ACTIONS_QUEUE: collect_activities(edge, UpdateDeliveryActivities(client))}

    def objections(self) -> Mapping[tuple[str, str], RaiseObjection]:
        """Returns who says that a cloudlet's webhook is not allowed."""
        return {("cloudlet", "create"): self._check_webhook_allowed}

    async def _check_webhook_allowed(self, request: Request) -> None:
        spec = request.spec or {}
        if spec.get("transport") != "webhook":
            return
        try:
            self._webhook.check_url(str(spec.get("url", "")))
        except Rejected as rejected:
            hint = "give it a url that is listed, or list its origin there and start the workers again"
            raise Refused(Category.NOT_ALLOWED, f"{rejected}: nothing was changed", hint) from rejected

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
