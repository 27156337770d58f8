"""What systems ask of a backend, and what crosses the wire between their workflows and activities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from domain.model import Model, Stepped
from domain.systems.rules import ServiceFacts, StoredPart

# Workflow types and activities.
CREATE_SYSTEM = "CreateSystem"
DEPLOY_PART = "DeployPart"
TEAR_DOWN_SYSTEM = "TearDownSystem"
DELETE_SYSTEM = "DeleteSystem"
ACCEPT_DEPLOY = "accept_deploy"
REVERT_DEPLOY = "revert_deploy"
ACCEPT_REMOVAL = "accept_removal"
READ_SERVICES = "read_services"
PREPARE_SYSTEM = "prepare_system"
ROLL_OUT = "roll_out"
ASSESS_PARTS = "assess_parts"
SETTLE_PARTS = "settle_parts"
REMOVE_PARTS = "remove_parts"
SETTLE_REMOVAL = "settle_removal"


def backend_queue(backend: str) -> str:
    """The task queue on which one backend is reached."""
    return f"backend-{backend}"


class SystemWork(Model):
    """An action on a system, for the activities that carry it out."""

    path: str
    epoch: int
    backend: str
    record: str = ""  # the path of the deploy's or the teardown's own record
    undo: bool = False  # the former definition is put back
    born: bool = False  # the part at the path itself is new: on the way back it goes

    def loses(self, path: str) -> bool:
        """Is that the new part which goes on the way back?"""
        return self.undo and self.born and path == self.path

    def generation(self) -> int:
        """Orders of a later action, and of the way back, replace those of an earlier one; never the other way."""
        return 2 * self.epoch + self.undo


class AcceptDeploy(Model):
    """A deploy, its definition included: what is done to the inventory before a backend hears of it."""

    work: SystemWork
    definition: dict[str, Any]  # as it was written: that is shorter
    at: datetime


class RevertDeploy(Model):
    """A deploy to be taken back."""

    work: SystemWork
    at: datetime


class RollOutResult(Model):
    """How a roll-out came out."""

    ok: bool
    reason: str = ""
    services: int = 0
    own: str = ""  # where the part at the path itself belongs, if it is a service


class ServicesView(Model):
    """What backends say of services, as readers get it."""

    services: list[ServiceFacts]


@dataclass(frozen=True, slots=True)
class ServiceOrder:
    """A service as it should be from now on."""

    path: str
    generation: int
    definition: dict[str, Any]


class ChangeListener(Protocol):
    """Hears of changes."""

    async def news(self) -> None:
        """Return when something may have changed since the last time."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """What runs services. Everything may be said twice; an older generation never replaces a newer one.

    Each order names the generation of its action (`Work.generation`). Whoever has seen a higher one there, or above,
    refuses as Superseded: a worker that was frozen may give its order when a later action is done.
    """

    name: str

    async def prepare(self, system: str, generation: int) -> None:
        """Make what a system needs before its first service. Rejected if that is impossible."""
        ...

    async def apply(self, orders: Sequence[ServiceOrder]) -> None:
        """Want these services; returns at once. Instances are replaced one by one."""
        ...

    async def remove(self, prefix: str, generation: int, keep: Sequence[str] = ()) -> None:
        """Want nothing any more at and below a path, except what is to be kept; returns at once."""
        ...

    async def facts(self, prefix: str = "") -> list[ServiceFacts]:
        """What is known of the services at and below a path. One that is gone is not listed."""
        ...

    def listen(self, prefix: str) -> ChangeListener:
        """Hear of changes at and below a path from now on."""
        ...

    async def dispose(self, system: str, generation: int) -> None:
        """Forget everything about a system that has no services any more."""
        ...


class SystemStore(Protocol):
    """What systems ask of the inventory besides the kernel's own writes. Every method is one transaction."""

    async def accept(self, acceptance: AcceptDeploy) -> Stepped:
        """Write the new definition below the path; the record is accepted."""
        ...

    async def accept_removal(self, asked: RevertDeploy) -> Stepped:
        """Mark everything below the path for removal; the record, if there is one, is accepted."""
        ...

    async def revert(self, asked: RevertDeploy) -> Stepped:
        """Write the former definition of everything that the deploy touched."""
        ...

    async def touched(self, work: SystemWork) -> list[StoredPart]:
        """The parts at and below the path that belong to this action and are not at rest."""
        ...

    async def services(self, prefix: str) -> list[StoredPart]:
        """All services at and below a path."""
        ...

    async def observe(self, facts: Sequence[ServiceFacts], at: datetime) -> int:
        """Services at rest change as the backend says. Returns how many did."""
        ...
