"""Simulated instances, which exist in the ledger only.

A service's environment controls them: with SIMULATED=crash every instance ends as soon as it is up, with
SIMULATED=unhealthy none becomes healthy.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from domain.services.definition import Node
from domain.services.ports import InstanceLog
from providers.services.ledger import SupervisedInstance
from providers.services.proxy import InstanceRoute

BEHAVIOUR_VARIABLE = "SIMULATED"


class SimulatedRunner:
    """An `InstanceRunner` whose instances are simulated, without processes."""

    name = "simulated"
    steady_seconds = 0.0

    def __init__(self, latency: float = 0.0) -> None:
        self._latency = latency
        self._ends: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.starts: defaultdict[str, int] = defaultdict(int)  # starts per service, for tests
        self.held: set[str] = set()  # services that neither become healthy nor end until released

    async def start_instance(self, unit: SupervisedInstance) -> None:
        self._ends.pop(unit.token, None)
        if self._latency:
            await asyncio.sleep(self._latency)
        self.starts[unit.path] += 1

    async def find_instance(self, unit: SupervisedInstance) -> bool:
        return True  # simulated instances survive restarts

    async def wait_for_exit(self, unit: SupervisedInstance) -> str:
        if unit.node.environment.get(BEHAVIOUR_VARIABLE) == "crash":
            return "ended by itself, as simulated"
        await self._ends[unit.token].wait()
        return "was lost, as simulated"

    async def stop_instance(self, unit: SupervisedInstance) -> None:
        while unit.path in self.held:  # noqa: ASYNC110  whoever holds it does not tell
            await asyncio.sleep(0.02)
        self._ends.pop(unit.token, None)

    async def probe_instance(self, unit: SupervisedInstance) -> str:
        if unit.path in self.held:
            return "held, as simulated"
        return "not well, as simulated" if unit.node.environment.get(BEHAVIOUR_VARIABLE) else ""

    def crash_instance(self, token: str) -> None:
        """Simulates a crash of the instance."""
        self._ends[token].set()

    async def read_logs(self, path: str, lines: int) -> list[InstanceLog]:
        return []  # it writes nothing

    def proxy_definition(self, path: str, node: Node) -> Node | None:
        return None

    def route_of_instance(self, unit: SupervisedInstance) -> InstanceRoute:
        return InstanceRoute(unit.port)

    def set_routes(self, path: str, routes: Sequence[InstanceRoute]) -> None:
        pass

    def check_service(self, node: Node) -> None:
        pass  # it runs nothing

    async def prepare_system(self, system: str, generation: int) -> None:
        pass

    async def clean_up_system(self, system: str, generation: int) -> None:
        pass
