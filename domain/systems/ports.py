"""Protocols of a backend and of the store, and the messages between the system family's workflows and activities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from domain.model import Model, ReadQuery, StepResult
from domain.systems.rules import ServiceFacts, StoredPart

# Workflow types and activities.
CREATE_SYSTEM = "CreateSystem"
DEPLOY_PART = "DeployPart"
TEAR_DOWN_SYSTEM = "TearDownSystem"
DELETE_SYSTEM = "DeleteSystem"
READ_SERVICES = "read_services"
READ_DEFINITION = "read_definition"
READ_SERVICE_LOGS = "read_service_logs"
FORMER_DEFINITION = "former"  # the kind of a query for what a deploy replaced


def backend_queue(backend: str) -> str:
    """Returns the task queue of one backend."""
    return f"backend-{backend}"


class SystemTerms(Model):
    """The details of a grant on a system or a part."""

    backend: str
    name: str = ""  # of the deploy or teardown: d1
    record: str = ""  # its path


class SystemWork(Model):
    """The input of the systems family's activities: an action on a system or part."""

    path: str
    epoch: int
    backend: str
    record: str = ""  # the path of the deploy's or teardown's own object
    undo: bool = False  # restore the former definition
    born: bool = False  # the part at the path itself is new: an undo removes it

    def is_removed_by_undo(self, path: str) -> bool:
        """Tells whether this is the new part that is removed when the deploy is undone."""
        return self.undo and self.born and path == self.path

    def order_generation(self) -> int:
        """Returns the generation of this work's orders: higher for a later action, and for an undo. It only rises."""
        return 2 * self.epoch + self.undo


class AcceptDeploy(Model):
    """A deploy and its definition, to write into the inventory before the backend is asked."""

    work: SystemWork
    definition: dict[str, Any]  # as the user wrote it: shorter than with defaults
    at: datetime


class RevertDeploy(Model):
    """A deploy to undo in the inventory, or a removal to begin."""

    work: SystemWork
    at: datetime


class RollOutResult(Model):
    """The result of a roll-out or removal of services: success, or the reason of the failure."""

    ok: bool
    reason: str = ""
    services: int = 0
    own: str = ""  # the final status of the part at the path itself, if it is a service


class ServicesView(Model):
    """Services as their backends report them."""

    services: list[ServiceFacts]


class DefinitionView(Model):
    """The definition of a deploy, or the one that it replaced; None if there was none."""

    definition: dict[str, Any] | None


class InstanceLog(Model):
    """The last lines that an instance of a service has written."""

    path: str
    number: int
    lines: list[str]


class ServiceLogsView(Model):
    """The last lines of services, by path and instance. `more` counts instances that are left out."""

    logs: list[InstanceLog]
    more: int = 0


@dataclass(frozen=True, slots=True)
class ServiceOrder:
    """The desired definition of a service."""

    path: str
    generation: int
    definition: dict[str, Any]


class ChangeListener(Protocol):
    """Waits for changes of a backend's services."""

    async def wait_for_change(self) -> None:
        """Waits until something may have changed since the last call."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """Runs services. Orders are repeatable; an older generation never replaces a newer one.

    Each order names the generation of its action (`SystemWork.generation`). A backend that has seen a higher one at
    that path, or above, refuses it as Superseded: a worker that was frozen may order after a later action is done.
    """

    name: str

    async def prepare_system(self, system: str, generation: int) -> None:
        """Creates what a system needs before its first service; raises Rejected if that is impossible."""
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

    async def list_living(self, prefix: str, after: str) -> list[ServiceFacts]:
        """A page of the services at and below a path, or of all, in the order of the paths, from after one on."""
        ...

    def listen_for_changes(self, prefix: str) -> ChangeListener:
        """Listens for changes at and below a path from now on."""
        ...

    async def clean_up_system(self, system: str, generation: int) -> None:
        """Removes what a system needed at the backend; it has no services left."""
        ...


class SystemStore(Protocol):
    """The systems family's store, besides the kernel's writes. Every method is one transaction."""

    async def accept_deploy(self, acceptance: AcceptDeploy) -> StepResult:
        """Writes the new definition below the path, and marks the deploy's record accepted."""
        ...

    async def accept_removal(self, asked: RevertDeploy) -> StepResult:
        """Marks everything below the path for removal, and its record, if any, accepted."""
        ...

    async def revert_deploy(self, asked: RevertDeploy) -> StepResult:
        """Writes back the former definition of every part that the deploy changed."""
        ...

    async def list_touched_parts(self, work: SystemWork) -> list[StoredPart]:
        """Returns the parts at and below the path that this action has changed and that are not at rest."""
        ...

    async def read_definition(self, query: ReadQuery) -> DefinitionView:
        """Returns the definition of a deploy, or the one that it replaced. Refused if there is no such deploy."""
        ...

    async def list_services(self, prefix: str) -> list[StoredPart]:
        """Returns all services at and below a path."""
        ...

    async def record_observations(self, facts: Sequence[ServiceFacts], at: datetime) -> int:
        """Writes the backend's state of services at rest. Returns how many changed."""
        ...

    async def list_leaving_parts(self, backend: str) -> dict[str, int]:
        """Returns parts at rest whose removal began on a backend, with their epochs: it may have removed them since."""
        ...

    async def forget_parts(self, parts: Mapping[str, int], at: datetime) -> int:
        """Removes parts that their backend has removed, if they still have these epochs. Returns how many went."""
        ...
