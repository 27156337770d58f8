"""The specs of the system family's actions: a definition is a tree of systems and services, checked as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from pydantic import Field, model_validator

from domain.model import FrozenModel
from domain.services.definition import MAX_PARTS, BackendName, Node

MAX_DEPTH = 12


class SystemSpec(FrozenModel):
    """The spec of `system create`."""

    example = {"backend": "process"}

    backend: BackendName = Field("simulated", description="What runs the services: simulated, process or container.")
    description: str = Field("", max_length=500, description="What it is for.")


class DeploySpec(FrozenModel):
    """The spec of `system deploy`: the definition that replaces the one at the path."""

    example = {
        "definition": {
            "parts": [
                {
                    "name": "web",
                    "command": ["python3", "server.py"],
                    "instances": 2,
                    "port": 28080,
                    "health": {"http": "/health"},
                }
            ]
        }
    }

    definition: Node
    deadline: float = Field(300.0, gt=0, le=86_400, description="Seconds until all services must be stable.")
    rollback: bool = Field(False, description="Restore the former definition if the deploy fails.")

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        nodes = list(walk_nodes("", self.definition))
        if len(nodes) > MAX_PARTS:
            raise ValueError(f"{len(nodes)} parts are too many: the limit is {MAX_PARTS} in one deploy")
        if max(path.count(":") for path, _ in nodes) > MAX_DEPTH:
            raise ValueError(f"the tree is deeper than {MAX_DEPTH}")
        ports = [node.port for _, node in nodes if node.port]
        if twice := next((port for port in ports if ports.count(port) > 1), None):
            raise ValueError(f"port {twice} is given to more than one service")
        return self


def walk_nodes(path: str, node: Node) -> Iterator[tuple[str, Node]]:
    """Returns the node and every node below it, each with its path."""
    yield path, node
    for part in node.parts or ():
        yield from walk_nodes(f"{path}:{part.name}", part)


def stored_spec(node: Node) -> dict[str, Any]:
    """Returns the stored definition of one node, without its parts: those are objects of their own."""
    own = node.model_dump(mode="json", exclude_defaults=True, exclude={"name", "parts"})
    return own | ({"parts": []} if node.is_system else {})


def stored_jobs(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns the stored jobs of a system, as the user wrote them."""
    return {"jobs": spec["jobs"]} if spec.get("jobs") else {}


def is_service(spec: dict[str, Any]) -> bool:
    """Tells whether this stored spec is a service's."""
    return "command" in spec or "image" in spec
