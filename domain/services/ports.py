"""Protocols of a backend, which runs services, and what is said to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from domain.model import FrozenModel
from domain.services.definition import Node
from domain.services.rollout import ServiceFacts


class InstanceLog(FrozenModel):
    """The last lines that an instance of a service has written."""

    path: str
    number: int
    lines: list[str]


@dataclass(frozen=True, slots=True)
class ServiceOrder:
    """The desired definition of a service."""

    path: str
    generation: int
    definition: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TakenPort:
    """A port that a service asks for and that another one of the same machine has, or an open action asks for."""

    port: int
    path: str  # of the service that asks
    holder: str
    action: str = ""  # the action that asks for it for the holder, and is not finished
    action_path: str = ""

    def describe_holder(self) -> str:
        """Says who has the port."""
        why = f", by {self.action} of {self.action_path}, which is not finished" if self.action else ""
        return f"{self.holder}{why}"

    def find_remedy(self) -> str:
        """Says when it could be free."""
        if self.action:
            return f"wait until that has ended: starter wait {self.action_path}"
        return "take it away there first"


class ChangeSubscription(Protocol):
    """Waits for changes of a backend's services."""

    async def wait_for_change(self) -> None:
        """Waits until something may have changed since the last call."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """Runs services. Orders are repeatable; an older generation never replaces a newer one.

    Each order names the generation of its action, which only rises. A backend that has seen a higher one at that path,
    or above, refuses it as Superseded: a worker that was frozen may order after a later action is done.
    """

    name: str

    async def prepare_system(self, system: str, generation: int) -> None:
        """Creates what a system needs before its first service; raises Rejected if that is impossible."""
        ...

    async def check_service(self, definition: Node) -> None:
        """Raises Rejected if the worker that runs the services does not allow this one. Changes nothing."""
        ...

    async def apply_orders(self, orders: Sequence[ServiceOrder]) -> None:
        """Sets the desired definitions of these services and returns at once. Instances are replaced one by one."""
        ...

    async def remove_services(self, prefix: str, generation: int, keep: Sequence[str] = ()) -> None:
        """Orders the removal of services at and below a path, except those in `keep`; returns at once."""
        ...

    async def describe_services(self, prefix: str = "") -> list[ServiceFacts]:
        """Returns the services at and below a path. A removed service is not listed."""
        ...

    async def read_logs(self, path: str, lines: int) -> list[InstanceLog]:
        """Returns the last lines of each instance of a service; the instance that wrote last comes last."""
        ...

    async def list_existing_objects(self, prefix: str, after: str) -> list[ServiceFacts]:
        """Returns the next services at and below a path, in the order of their paths."""
        ...

    def subscribe_to_changes(self, prefix: str) -> ChangeSubscription:
        """Listens for changes at and below a path from now on."""
        ...

    async def clean_up_system(self, system: str, generation: int) -> None:
        """Removes what a system needed at the backend; it has no services left."""
        ...
