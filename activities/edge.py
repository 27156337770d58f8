"""What the edge's workflows do to the world: requests to CRMs, and what their connections change in the inventory."""

from __future__ import annotations

from collections.abc import Mapping

from temporalio import activity
from temporalio.exceptions import ApplicationError

from domain.edge import messages as wire
from domain.edge.facts import AnswerFact, Connected, ConnectFact, LostFact, PolicyQuestion, Refuges, Told
from domain.edge.messages import Address, CrmRequest, IgnoredMany, Post, Verb
from domain.edge.policies import Facts
from domain.edge.ports import Crm, EdgeInventory
from domain.errors import Rejected

ITEMS_AT_ONCE = 200


class EdgeActivities:
    def __init__(self, inventory: EdgeInventory, ports: Mapping[str, Crm]) -> None:
        self._inventory = inventory
        self._ports = ports

    @activity.defn(name=wire.CRM_SEND)
    async def crm_send(self, post: Post) -> None:
        """Hand requests to a CRM. Sent twice they have one effect: a CRM knows a request by its key."""
        try:
            await self._ports[post.to.transport].send(post.to, post.requests)
        except Rejected as error:
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from error

    @activity.defn(name=wire.CRM_EVERYTHING)
    async def crm_everything(self, to: Address) -> int:
        """Tell a CRM all that should be on its cloudlet."""
        items = (await self._inventory.everything(to.cloudlet)).items
        for start in range(0, max(len(items), 1), ITEMS_AT_ONCE):
            some = {item.path: wire.digest(item.spec) for item in items[start : start + ITEMS_AT_ONCE]}
            await self.crm_send(Post(to=to, requests=[_all_data(to, start, some)]))
        return len(items)

    @activity.defn(name=wire.CRM_CONNECTED)
    async def crm_connected(self, fact: ConnectFact) -> Connected:
        return await self._inventory.connected(fact.cloudlet, fact.said, fact.at)

    @activity.defn(name=wire.CRM_ANSWERED)
    async def crm_answered(self, fact: AnswerFact) -> Told:
        return await self._inventory.answered(fact.cloudlet, fact.said, fact.at)

    @activity.defn(name=wire.CRM_LOST)
    async def crm_lost(self, fact: LostFact) -> Told:
        return await self._inventory.lost(fact.cloudlet, fact.said, fact.at)

    @activity.defn(name=wire.CRM_IGNORED)
    async def crm_ignored(self, ignored: IgnoredMany) -> int:
        """Keep messages that changed nothing in the history of the objects that they were about."""
        return await self._inventory.ignore(ignored.messages, ignored.at)

    @activity.defn(name=wire.FAILOVER_PLAN)
    async def failover_plan(self, cloudlet: str) -> Refuges:
        return await self._inventory.refuges(cloudlet)

    @activity.defn(name=wire.POLICY_FACTS)
    async def policy_facts(self, asked: PolicyQuestion) -> Facts:
        return await self._inventory.facts(asked)


def _all_data(to: Address, start: int, digests: dict[str, str]) -> CrmRequest:
    return CrmRequest(
        path=to.cloudlet,
        verb=Verb.ALL_DATA,
        notify_id=to.notify_id,
        version=to.version,
        attempt=start + 1,
        spec={"first": start == 0, "instances": digests},
    )
