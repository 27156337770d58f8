"""The edge's part of the inventory as its activities use it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from domain.edge.facts import (
    AnswerFact,
    Connected,
    ConnectFact,
    Inventoried,
    KeptPolicy,
    LostFact,
    PolicyQuestion,
    Refuges,
    Rejoined,
    Told,
)
from domain.edge.messages import Ignored
from domain.edge.policies import Facts
from domain.edge.ports import Doubt
from store.edge import links, views
from store.engine import Database


class SqlEdge:
    """`domain.edge.ports.EdgeInventory` on SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def connected(self, fact: ConnectFact, doubt: Doubt) -> Connected:
        return await self._database.run(partial(links.connected, fact=fact, doubt=doubt))

    async def answered(self, fact: AnswerFact, doubt: Doubt) -> Told:
        return await self._database.run(partial(links.answered, fact=fact, doubt=doubt))

    async def lost(self, fact: LostFact, doubt: Doubt) -> Told:
        return await self._database.run(partial(links.lost, fact=fact, doubt=doubt))

    async def rejoined(self, path: str, notify_id: int) -> Rejoined:
        return await self._database.run(partial(links.rejoined, path=path, notify_id=notify_id))

    async def ignore(self, messages: Sequence[Ignored], at: datetime) -> int:
        return await self._database.run(partial(links.ignore, messages=messages, at=at))

    async def everything(self, cloudlet: str, after: str) -> Inventoried:
        return await self._database.run(partial(views.everything, cloudlet=cloudlet, after=after))

    async def refuges(self, cloudlet: str) -> Refuges:
        return await self._database.run(partial(views.refuges, cloudlet=cloudlet))

    async def policy(self, path: str) -> KeptPolicy:
        return await self._database.run(partial(views.policy, path=path))

    async def facts(self, asked: PolicyQuestion) -> Facts:
        return await self._database.run(partial(views.facts, asked=asked))
