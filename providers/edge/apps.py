"""The apps of a cloudlet as services of its machine: processes or containers, which outlive their CRM.

The CRM records an app as there once all of its instances are healthy. If it is killed before, the controller asks for
the app again; that order is the same as the first one, so nothing is started twice.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from pydantic import ValidationError

from domain.edge.messages import CrmRequest
from domain.errors import Rejected
from domain.services.definition import Node
from domain.services.ports import Backend, ServiceOrder
from domain.services.rollout import ServiceFacts
from domain.validation import describe_validation_errors

SERVICE_FIELDS = ("port", "health", "environment", "secretFrom", "resources")  # as of a system's service
HEALTHY_SECONDS = 600.0  # until all instances must be healthy


class CloudletApps:
    """The apps of one cloudlet on one backend. Raises a ProviderError with the reason if one does not run."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def run_app(self, request: CrmRequest) -> dict[str, Any]:
        """Runs an app as its request says, and waits until all instances are healthy. Returns what runs."""
        order = ServiceOrder(request.path, _generation(request), self._definition(request.spec))
        deadline = float(request.spec.get("deadline") or HEALTHY_SECONDS)
        try:
            async with asyncio.timeout(deadline):
                return await self._wait_until_healthy(order)
        except TimeoutError:
            facts = await self._find(order.path)
            raise Rejected(f"after {deadline:g} s: {facts.describe() if facts else 'nothing runs'}") from None

    async def _wait_until_healthy(self, order: ServiceOrder) -> dict[str, Any]:
        with closing(self._backend.subscribe_to_changes(order.path)) as listener:
            await self._backend.apply_orders([order])
            while True:
                facts = await self._find(order.path)
                if facts is None:  # it was just being removed as a leftover
                    await self._backend.apply_orders([order])
                elif facts.is_rolled_out(order.generation):
                    return {"backend": self._backend.name, "instances": facts.current}
                elif facts.is_failing(order.generation):
                    raise Rejected(facts.describe())
                await listener.wait_for_change()

    async def stop_apps(self, request: CrmRequest) -> None:
        """Stops what runs at and below a path, and waits until nothing of it is left."""
        await self._stop(request.path, _generation(request))

    async def stop_unrecorded_apps(self, recorded: Sequence[str]) -> list[str]:
        """Stops apps that are on the machine and not recorded. Returns their paths."""
        leftovers = [facts for facts in await self._backend.describe_services() if facts.path not in recorded]
        for facts in leftovers:
            await self._stop(facts.path, await self._wait_until_seen(facts))
        return [facts.path for facts in leftovers]

    async def list_paths(self) -> set[str]:
        """Returns the paths of all apps on the machine, also of half-made ones."""
        return {facts.path for facts in await self._backend.describe_services()}

    async def _stop(self, path: str, generation: int) -> None:
        with closing(self._backend.subscribe_to_changes(path)) as listener:
            await self._backend.remove_services(path, generation)
            while await self._backend.describe_services(path):
                await listener.wait_for_change()

    async def _wait_until_seen(self, facts: ServiceFacts) -> int:
        """Returns the generation of an app's last order, once its supervisor has seen it."""
        with closing(self._backend.subscribe_to_changes(facts.path)) as listener:
            while (last := await self._find(facts.path)) and last.generation < 0:
                await listener.wait_for_change()
            return last.generation if last else 0

    async def _find(self, path: str) -> ServiceFacts | None:
        return next((facts for facts in await self._backend.describe_services(path) if facts.path == path), None)

    def _definition(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        try:
            command = shlex.split(str(spec.get("command") or "")) or None
            image = spec.get("image") if self._backend.name == "container" else None
            if not command and not image:
                raise Rejected(f"the backend {self._backend.name} needs a command: --command 'PROGRAM WORD ...'")
            more = {name: spec[name] for name in SERVICE_FIELDS if spec.get(name)}
            node = Node(image=image, command=command, instances=int(spec.get("replicas", 1)), **more)
        except ValidationError as error:
            raise Rejected(describe_validation_errors(error, "app")) from error
        except ValueError as error:
            raise Rejected(f"the command cannot be read: {error}") from error
        return node.model_dump(mode="json", exclude_defaults=True)


def _generation(request: CrmRequest) -> int:
    """Returns the generation of a request's orders: higher for a later action, and for an undo."""
    return 2 * request.epoch + request.undo
