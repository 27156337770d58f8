"""The protocol of the store, and the messages between the system family's workflows and activities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from domain.model import FrozenModel, ReadQuery, StepResult
from domain.requests import AboutRequest
from domain.services.ports import InstanceLog
from domain.services.rollout import ServiceFacts
from domain.systems.rules import StoredPart

# Workflow types and activities.
CREATE_SYSTEM = "CreateSystem"
DEPLOY_PART = "DeployPart"
TEAR_DOWN_SYSTEM = "TearDownSystem"
DELETE_SYSTEM = "DeleteSystem"
READ_SERVICES = "read_services"
READ_DEFINITION = "read_definition"
READ_SERVICE_LOGS = "read_service_logs"
READ_OBJECTIONS = "read_objections"
FORMER_DEFINITION = "former"  # the kind of a query for what a deploy replaced


def backend_queue(backend: str) -> str:
    """Returns the task queue of one backend."""
    return f"backend-{backend}"


class SystemGrantDetails(FrozenModel):
    """The details of a grant on a system or a part."""

    backend: str
    name: str = ""  # of the deploy or teardown: d1
    record: str = ""  # its path


class SystemWork(FrozenModel):
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


class DefinitionCheck(AboutRequest):
    """Asks a backend's worker whether it allows the services of a deploy."""


class ServiceObjections(FrozenModel):
    """Which services of a deploy a backend's worker does not allow, and why."""

    objections: list[str]


class AcceptDeploy(FrozenModel):
    """A deploy and its definition, to write into the inventory before the backend is asked."""

    work: SystemWork
    definition: dict[str, Any]  # as the user wrote it: shorter than with defaults
    at: datetime


class RevertDeploy(FrozenModel):
    """A deploy to undo in the inventory, or a removal to begin."""

    work: SystemWork
    at: datetime


class RollOutResult(FrozenModel):
    """The result of a roll-out or removal of services: success, or the reason of the failure."""

    ok: bool
    reason: str = ""
    services: int = 0
    own: str = ""  # the final status of the part at the path itself, if it is a service


class ServicesView(FrozenModel):
    """Services as their backends report them."""

    services: list[ServiceFacts]


class DefinitionView(FrozenModel):
    """The definition of a deploy, or the one that it replaced; None if there was none."""

    definition: dict[str, Any] | None


class ServiceLogsView(FrozenModel):
    """The last lines of services, by path and instance. `more` counts instances that are left out."""

    logs: list[InstanceLog]
    more: int = 0


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

    async def list_changed_parts(self, work: SystemWork) -> list[StoredPart]:
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

    async def list_parts_being_removed(self, backend: str) -> dict[str, int]:
        """Returns parts at rest whose removal began on a backend, with their epochs: it may have removed them since."""
        ...

    async def delete_removed_parts(self, parts: Mapping[str, int], at: datetime) -> int:
        """Removes parts that their backend has removed, if they still have these epochs. Returns how many went."""
        ...
