"""Instances that only exist in the books: they start after a while, and do as they are told.

What is simulated is said in a service's environment: SIMULATED=crash ends every instance as soon as it is up,
SIMULATED=unhealthy lets none of them get well.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from domain.systems.specs import Node
from providers.systems.state import ServiceInstance

HOW = "SIMULATED"


class SimulatedRunner:
    """`Runner` without any process."""

    name = "simulated"
    steady = 0.0

    def __init__(self, latency: float = 0.0) -> None:
        self._latency = latency
        self._ends: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.starts: defaultdict[str, int] = defaultdict(int)  # per service, for the books
        self.held: set[str] = set()  # paths of services that neither get well nor end until they are let go

    async def start(self, unit: ServiceInstance) -> None:
        self._ends.pop(unit.token, None)
        if self._latency:
            await asyncio.sleep(self._latency)
        self.starts[unit.path] += 1

    async def find(self, unit: ServiceInstance) -> bool:
        return True  # nothing that a restart could end

    async def ended(self, unit: ServiceInstance) -> str:
        if unit.node.environment.get(HOW) == "crash":
            return "ended by itself, as simulated"
        await self._ends[unit.token].wait()
        return "was lost, as simulated"

    async def stop(self, unit: ServiceInstance) -> None:
        while unit.path in self.held:  # noqa: ASYNC110  whoever holds it does not tell
            await asyncio.sleep(0.02)
        self._ends.pop(unit.token, None)

    async def probe(self, unit: ServiceInstance) -> str:
        if unit.path in self.held:
            return "held, as simulated"
        return "not well, as simulated" if unit.node.environment.get(HOW) else ""

    def lose(self, token: str) -> None:
        """The instance ends by itself."""
        self._ends[token].set()

    def front(self, path: str, node: Node) -> Node | None:
        return None

    def route(self, path: str, ports: Sequence[int]) -> None:
        pass

    async def prepare(self, system: str, generation: int) -> None:
        pass

    async def dispose(self, system: str, generation: int) -> None:
        pass
