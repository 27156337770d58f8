"""The protocol between a supervisor and the place where instances run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.services.definition import Node
from domain.services.ports import InstanceLog
from providers.services.ledger import SupervisedInstance
from providers.services.proxy import InstanceRoute


class InstanceRunner(Protocol):
    """Starts, watches and stops single instances. Raises a ProviderError with the reason on failure."""

    name: str
    steady_seconds: float  # an instance without a health check counts as healthy after so many seconds

    def check_service(self, node: Node) -> None:
        """Raises Rejected if a service may not run here: its program or its image is not listed."""
        ...

    async def start_instance(self, unit: SupervisedInstance) -> None:
        """Starts the instance, and stores its pid and port in the unit."""
        ...

    async def find_instance(self, unit: SupervisedInstance) -> bool:
        """Tells whether the recorded instance is up, started by an earlier supervisor; stores its pid in the unit."""
        ...

    async def wait_for_exit(self, unit: SupervisedInstance) -> str:
        """Waits until the instance has ended by itself. Returns the reason."""
        ...

    async def stop_instance(self, unit: SupervisedInstance) -> None:
        """Ends the instance, gracefully if possible. Nothing of it is left on return."""
        ...

    async def probe_instance(self, unit: SupervisedInstance) -> str:
        """Checks the instance's health. Returns an empty string if it is healthy, else the reason."""
        ...

    async def read_logs(self, path: str, lines: int) -> list[InstanceLog]:
        """Returns the last lines of each instance of a service; the instance that wrote last comes last."""
        ...

    def proxy_definition(self, path: str, node: Node) -> Node | None:
        """Returns the proxy in front of a service's instances, or None."""
        ...

    def route_of_instance(self, unit: SupervisedInstance) -> InstanceRoute:
        """Returns where the instance answers."""
        ...

    def set_routes(self, path: str, routes: Sequence[InstanceRoute]) -> None:
        """Routes requests to these instances from now on."""
        ...

    async def prepare_system(self, system: str, generation: int) -> None:
        """Creates what a system needs, and records its generation."""
        ...

    async def clean_up_system(self, system: str, generation: int) -> None:
        """Removes what a system needed. Raises Superseded if a later generation has created it anew."""
        ...
