"""The edge's part of the inventory as its activities use it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from domain.edge.facts import (
    AnswerFact,
    CloudletAnswer,
    Connected,
    ConnectFact,
    ExpectedPage,
    KeptPolicy,
    LostFact,
    PolicyQuestion,
    Refuges,
    Rejoined,
)
from domain.edge.messages import IgnoredMessage
from domain.edge.policies import PolicyFacts
from domain.edge.ports import CheckProof
from store.edge import links, queries
from store.engine import Database


class SqlEdge:
    """`domain.edge.ports.EdgeInventory` on SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accept_connection(self, fact: ConnectFact, doubt: CheckProof) -> Connected:
        return await self._database.run(partial(links.connected, fact=fact, doubt=doubt))

    async def record_answer(self, fact: AnswerFact, doubt: CheckProof) -> CloudletAnswer:
        return await self._database.run(partial(links.answered, fact=fact, doubt=doubt))

    async def record_loss(self, fact: LostFact, doubt: CheckProof) -> CloudletAnswer:
        return await self._database.run(partial(links.lost, fact=fact, doubt=doubt))

    async def find_connection(self, path: str, notify_id: int) -> Rejoined:
        return await self._database.run(partial(links.rejoined, path=path, notify_id=notify_id))

    async def record_ignored(self, messages: Sequence[IgnoredMessage], at: datetime) -> int:
        return await self._database.run(partial(links.ignore, messages=messages, at=at))

    async def expected_instances(self, cloudlet: str, after: str) -> ExpectedPage:
        return await self._database.run(partial(queries.everything, cloudlet=cloudlet, after=after))

    async def find_refuges(self, cloudlet: str) -> Refuges:
        return await self._database.run(partial(queries.refuges, cloudlet=cloudlet))

    async def stored_policy(self, path: str) -> KeptPolicy:
        return await self._database.run(partial(queries.policy, path=path))

    async def policy_facts(self, asked: PolicyQuestion) -> PolicyFacts:
        return await self._database.run(partial(queries.facts, asked=asked))
