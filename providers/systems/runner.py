"""What a keeper asks of the place where instances run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.systems.specs import Node
from providers.systems.state import ServiceInstance


class Runner(Protocol):
    """Starts, watches and stops single instances. What cannot be done is a ProviderError that says why."""

    name: str
    steady: float  # an instance without a health check is well after it has run for so many seconds

    async def start(self, unit: ServiceInstance) -> None:
        """Start it; its process and port are in the unit afterwards."""
        ...

    async def find(self, unit: ServiceInstance) -> bool:
        """Is the instance of this record up, from before we came? Its process is in the unit afterwards."""
        ...

    async def ended(self, unit: ServiceInstance) -> str:
        """Wait until it has ended by itself; why it did."""
        ...

    async def stop(self, unit: ServiceInstance) -> None:
        """End it: in good order if it will, else hard. Nothing of it is left when this returns."""
        ...

    async def probe(self, unit: ServiceInstance) -> str:
        """Check its health: nothing if it is well, else why not."""
        ...

    def front(self, path: str, node: Node) -> Node | None:
        """What stands before the instances of a service and passes requests on, if anything does."""
        ...

    def route(self, path: str, ports: Sequence[int]) -> None:
        """Requests go to the instances at these ports from now on."""
        ...

    async def prepare(self, system: str, generation: int) -> None:
        """Make what a system needs, and remember by which generation."""
        ...

    async def dispose(self, system: str, generation: int) -> None:
        """Remove what a system needed. Superseded if a later generation has made it anew."""
        ...
