"""What the edge's workflows do to the world: requests to CRMs, and what their connections change in the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.pages import every
from activities.pulse import pulse
from activities.signatures import doubt
from domain.edge import messages as wire
from domain.edge.facts import (
    AnswerFact,
    Connected,
    ConnectFact,
    LostFact,
    PolicyQuestion,
    Refuges,
    Rejoin,
    Rejoined,
    Told,
)
from domain.edge.messages import Address, CrmRequest, IgnoredMany, Post, Verb
from domain.edge.policies import Facts
from domain.edge.ports import Crm, Doubt, EdgeInventory
from domain.errors import Rejected
from domain.model import Finding
from domain.ports import Inventory

ITEMS_AT_ONCE = 200


class EdgeActivities:
    """Requests to CRMs, and what their messages and policies need of the inventory."""

    def __init__(self, inventory: EdgeInventory, ports: Mapping[str, Crm]) -> None:
        self._inventory = inventory
        self._ports = ports

    @activity.defn(name=wire.CRM_SEND)
    async def crm_send(self, post: Post) -> None:
        """Hand requests to a CRM. Sent twice they have one effect: a CRM knows a request by its key."""
        if activity.info().is_local:
            await self._send(post)
            return
        async with pulse():
            await self._send(post)

    async def _send(self, post: Post) -> None:
        try:
            await self._ports[post.to.transport].send(post.to, post.requests)
        except Rejected as error:
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from error

    @activity.defn(name=wire.CRM_EVERYTHING)
    async def crm_everything(self, to: Address) -> int:
        """Tell a CRM all that should be on its cloudlet."""
        async with pulse():
            items = (await self._inventory.everything(to.cloudlet)).items
            for start in range(0, max(len(items), 1), ITEMS_AT_ONCE):
                some = {item.path: wire.digest(item.spec) for item in items[start : start + ITEMS_AT_ONCE]}
                await self._send(Post(to=to, requests=[_all_data(to, start, some)]))
            return len(items)

    @activity.defn(name=wire.CRM_CONNECTED)
    async def crm_connected(self, fact: ConnectFact) -> Connected:
        return await self._inventory.connected(fact.cloudlet, fact.said, fact.at, _doubt(fact))

    @activity.defn(name=wire.CRM_ANSWERED)
    async def crm_answered(self, fact: AnswerFact) -> Told:
        return await self._inventory.answered(fact.cloudlet, fact.said, fact.at, _doubt(fact))

    @activity.defn(name=wire.CRM_LOST)
    async def crm_lost(self, fact: LostFact) -> Told:
        return await self._inventory.lost(fact.cloudlet, fact.said, fact.at, _noticed if fact.noticed else _doubt(fact))

    @activity.defn(name=wire.CRM_REJOINED)
    async def crm_rejoined(self, asked: Rejoin) -> Rejoined:
        """The connection that an action was told of, as the inventory knows it."""
        return await self._inventory.rejoined(asked.path, asked.notify_id)

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


def _doubt(fact: ConnectFact | AnswerFact | LostFact) -> Doubt:
    """Told the cloudlet's key inside the transaction that the message is about."""
    return partial(doubt, text=fact.statement, proof=fact.said.proof)


def _noticed(_key: str) -> str:
    return ""


class CrmBooks:
    """I3 for instances: what the CRMs said that they have, when they last connected."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    async def audit(self, prefix: str) -> tuple[list[Finding], int]:
        """What is wrong at or below a path, and how many instances there are."""
        findings, number = [], 0
        async for cloudlet in every(self._inventory, "cloudlet", prefix):
            strange = cloudlet.info.get("orphans", [])
            findings += [
                Finding("I3", cloudlet.path, f"has an instance that is unknown to us: {path}") for path in strange
            ]
        for kind in ("cluster", "app"):
            async for view in every(self._inventory, kind, prefix):
                number += 1
                if view.info.get("missing"):
                    findings.append(Finding("I3", view.path, f"is {view.status}, but its CRM does not have it"))
        return findings, number


def _all_data(to: Address, start: int, digests: dict[str, str]) -> CrmRequest:
    return CrmRequest(
        path=to.cloudlet,
        verb=Verb.ALL_DATA,
        notify_id=to.notify_id,
        version=to.version,
        attempt=start + 1,
        spec={"first": start == 0, "instances": digests},
    )
