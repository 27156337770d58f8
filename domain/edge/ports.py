"""What the edge asks of others: of a CRM, and of the inventory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from domain.edge.facts import Connected, Inventoried, PolicyQuestion, Refuges, Rejoined, Told
from domain.edge.messages import Address, CrmConnect, CrmDisconnect, CrmRequest, CrmResponse, Ignored
from domain.edge.policies import Facts

Doubt = Callable[[str], str]  # why a message is not believed, by the cloudlet's key; empty if it is


class Crm(Protocol):
    """How requests leave. Returns when the CRM is sure to get them; its answers come as signals."""

    async def send(self, to: Address, requests: Sequence[CrmRequest]) -> None:
        """Unavailable: not sent. UnknownOutcome: perhaps sent. A retry helps both. Rejected: it will not take them."""
        ...


class EdgeInventory(Protocol):
    """What the inventory keeps of connections, and what policies want to know. Each method is one transaction."""

    async def connected(self, cloudlet: str, said: CrmConnect, at: datetime, doubt: Doubt) -> Connected: ...

    async def answered(self, cloudlet: str, said: CrmResponse, at: datetime, doubt: Doubt) -> Told: ...

    async def lost(self, cloudlet: str, said: CrmDisconnect, at: datetime, doubt: Doubt) -> Told: ...

    async def rejoined(self, path: str, notify_id: int) -> Rejoined: ...

    async def ignore(self, messages: Sequence[Ignored], at: datetime) -> int: ...

    async def everything(self, cloudlet: str) -> Inventoried: ...

    async def refuges(self, cloudlet: str) -> Refuges: ...

    async def facts(self, asked: PolicyQuestion) -> Facts: ...
